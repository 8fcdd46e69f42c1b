package sqldb

import (
	"encoding/hex"
	"strconv"
	"strings"
)

// alive makes a number overflow if MariaDB has rolled the transaction back, after a deadlock for example: an insert
// sent then would commit alone. To MySQL it is a comment, and its driver asks before.
//
// It asks for the session's settings too: see [Guarded].
var alive = " /*M! * (18446744073709551615 * (2 - @@in_transaction)) */ * (" + guard + ")"

// list is numbers or texts as they stand in a statement of MySQL, which takes no list as an argument.
type list string

func isList(arg any) bool {
	_, is := arg.(list)
	return is
}

func listOf[T int64 | string](values []T) list {
	if len(values) == 0 {
		return "NULL" // which nothing is equal to
	}
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = literal(v)
	}
	return list(strings.Join(texts, ", "))
}

// literal writes an argument into a statement. Texts are in hexadecimal: no setting of a server gives another meaning
// to that.
func literal(arg any) string {
	switch arg := arg.(type) {
	case list:
		return string(arg)
	case int64:
		return strconv.FormatInt(arg, 10)
	case string:
		return "x'" + hex.EncodeToString([]byte(arg)) + "'"
	case []byte:
		if arg != nil {
			return "x'" + hex.EncodeToString(arg) + "'"
		}
	}
	return "NULL"
}

// inlined makes a call of a statement with its arguments in the text: one with a list is another one each time, and is
// not worth preparing.
func inlined(st *Statement, args []any) *Call {
	text, order := Unnumbered(st.Text)
	var b strings.Builder
	for _, n := range order {
		before, rest, _ := strings.Cut(text, "?")
		b.WriteString(before + literal(args[n]))
		text = rest
	}
	b.WriteString(text)
	made := *st
	made.Text, made.Keep = b.String(), false
	return &Call{Statement: &made}
}
