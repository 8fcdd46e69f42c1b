package sqldb

import (
	"database/sql"
	"fmt"
	"math"
	"strconv"

	"github.com/everonce/everonce/driver"
)

// Misfit says that a column holds a value that its destination cannot take without loss. It wraps
// [driver.ErrCorruptRecord].
type Misfit struct {
	Column int    // from 0
	Holds  string // the value's type
}

func (m *Misfit) Error() string {
	return fmt.Sprintf("%v: column %d holds a %s", driver.ErrCorruptRecord, m.Column, m.Holds)
}

// Unwrap returns [driver.ErrCorruptRecord].
func (m *Misfit) Unwrap() error { return driver.ErrCorruptRecord }

// Assign copies values that a driver of database/sql returned into *int64, *string and *[]byte, for [Row.Scan] of a
// database whose columns hold values of any type. It converts values that convert without loss. The error wraps a
// [Misfit] of the first column that does not convert; the others are copied all the same.
func Assign[V any](dest []any, values []V) error {
	var misfit error
	for i, d := range dest {
		if !assign(d, values[i]) && misfit == nil {
			misfit = &Misfit{Column: i, Holds: fmt.Sprintf("%T", values[i])}
		}
	}
	return misfit
}

func assign(dest, value any) (ok bool) {
	switch d := dest.(type) {
	case *int64:
		*d, ok = number(value)
	case *string:
		*d, ok = text(value)
	case *[]byte:
		switch v := value.(type) {
		case nil:
			*d, ok = nil, true
		case []byte:
			*d, ok = v, true
			if v == nil { // a driver's empty value
				*d = []byte{}
			}
		default:
			var s string
			s, ok = text(v)
			*d = []byte(s)
		}
	}
	return ok
}

// number returns the whole number in a value. A float of a clock that counts microseconds has digits beyond them: those
// are dropped.
func number(value any) (int64, bool) {
	switch v := value.(type) {
	case nil:
		return 0, true
	case int64:
		return v, true
	case float64:
		const clock = 1 << 50 // above it, a float64 has no room for more than quarters
		whole := math.Trunc(v)
		return int64(whole), math.Abs(v) < 1<<62 && (whole == v || math.Abs(v) >= clock)
	}
	var n sql.Null[int64] // digits, as MySQL sends them where a statement was not prepared
	err := n.Scan(value)
	return n.V, err == nil
}

// text returns the text in a value. An integer is its digits.
func text(value any) (string, bool) {
	switch v := value.(type) {
	case nil:
		return "", true
	case string:
		return v, true
	case []byte:
		return string(v), true
	case int64:
		return strconv.FormatInt(v, 10), true
	}
	return "", false
}
