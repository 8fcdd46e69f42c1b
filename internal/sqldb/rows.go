package sqldb

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
)

// Rows is a table that comes with a statement, as its first arguments: one statement then does what would be one for
// each row. Its columns are numbers, or, where their names begin with "b_", bytes.
type Rows struct {
	dialect *Dialect
	columns []string
}

// Rows makes one of these columns. Statements know it as u.
func (d *Dialect) Rows(columns ...string) Rows { return Rows{d, columns} }

// Args is how many arguments it has.
func (r Rows) Args() int {
	if r.dialect.Arrays {
		return len(r.columns)
	}
	return 1
}

// From is its text in a template.
func (r Rows) From() string {
	d := r.dialect
	if d.MySQL {
		return "({1t}) AS u"
	}
	parts := make([]string, len(r.columns))
	for i, column := range r.columns {
		isBytes := strings.HasPrefix(column, "b_")
		switch {
		case d.Arrays && isBytes:
			parts[i] = fmt.Sprintf("{%dt}::bytea[]", i+1)
		case d.Arrays:
			parts[i] = fmt.Sprintf("{%dt}::bigint[]", i+1)
		case isBytes:
			parts[i] = fmt.Sprintf("unhex(json_extract(value, '$[%d]')) AS %s", i, column)
		default:
			parts[i] = fmt.Sprintf("json_extract(value, '$[%d]') AS %s", i, column)
		}
	}
	all := strings.Join(parts, ", ")
	if d.Arrays {
		return "unnest(" + all + ") AS u (" + strings.Join(r.columns, ", ") + ")"
	}
	return "(SELECT " + all + " FROM json_each({1t})) AS u"
}

// Of makes the arguments of rows, which are int64, []byte or nil. There must be one.
func (r Rows) Of(rows [][]any) []any {
	switch {
	case r.dialect.Arrays:
		return r.arrays(rows)
	case r.dialect.MySQL:
		return []any{r.union(rows)}
	}
	for _, row := range rows {
		for i, v := range row {
			if b, ok := v.([]byte); ok {
				if row[i] = any(hex.EncodeToString(b)); b == nil {
					row[i] = nil
				}
			}
		}
	}
	text, err := json.Marshal(rows)
	if err != nil { // numbers and texts have none
		panic(err)
	}
	return []any{string(text)}
}

func (r Rows) arrays(rows [][]any) []any {
	args := make([]any, len(r.columns))
	for i := range args {
		var a Array
		for _, row := range rows {
			switch v := row[i].(type) {
			case int64:
				a.Int(v)
			case []byte:
				a.Bytes(v)
			default:
				a.Bytes(nil)
			}
		}
		args[i] = a.Arg()
	}
	return args
}

func (r Rows) union(rows [][]any) list {
	var b strings.Builder
	for n, row := range rows {
		if n > 0 {
			b.WriteString(" UNION ALL ")
		}
		for i, v := range row {
			if i == 0 {
				b.WriteString("SELECT ")
			} else {
				b.WriteString(", ")
			}
			b.WriteString(literal(v))
			if n == 0 {
				b.WriteString(" AS " + r.columns[i])
			}
		}
	}
	return list(b.String())
}
