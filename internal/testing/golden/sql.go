package golden

import (
	"database/sql"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/everonce/everonce/driver"
)

// Tables are the tables of an SQL store. A record is shown as all columns of its row that are not NULL, by their names,
// and the columns of its steps' rows.
type Tables struct {
	testing.TB
	DB     *sql.DB
	Prefix string             // of the tables' names
	Arg    func(n int) string // how a statement names its n-th argument
}

var tables = []struct{ name, order string }{{"record", "id"}, {"step", "seq, name"}}

// Load is [Harness].Load.
func (d *Tables) Load(id driver.RecordID, stored string) {
	d.Helper()
	for _, table := range slices.Backward(tables) {
		d.exec("DELETE FROM "+d.Prefix+table.name+" WHERE id = "+d.Arg(1), id[:])
	}
	var table string
	var columns, places []string
	var values []any
	insert := func() {
		if table != "" {
			d.exec("INSERT INTO "+d.Prefix+table+" ("+strings.Join(columns, ", ")+") VALUES ("+strings.Join(places, ", ")+")", values...)
		}
		columns, places, values = nil, nil, nil
	}
	for line := range strings.Lines(stored) {
		column, value, isColumn := strings.Cut(strings.TrimSuffix(line, "\n"), " = ")
		if !isColumn {
			insert()
			table = column
			continue
		}
		columns, values = append(columns, column), append(values, d.parse(value))
		places = append(places, d.Arg(len(columns)))
	}
	insert()
}

// Dump is [Harness].Dump.
func (d *Tables) Dump(id driver.RecordID, times Times) string {
	d.Helper()
	var b strings.Builder
	for _, table := range tables {
		d.each("SELECT * FROM "+d.Prefix+table.name+" WHERE id = "+d.Arg(1)+" ORDER BY "+table.order, id[:], func(columns []string, values []any) {
			lines := make([]string, 0, len(columns))
			for i, column := range columns {
				if n, ok := values[i].(int64); ok && isTime(column) {
					values[i] = times(n, 0, 0)
				}
				if values[i] != nil {
					lines = append(lines, column+" = "+d.format(values[i])+"\n")
				}
			}
			slices.Sort(lines)
			b.WriteString(table.name + "\n" + strings.Join(lines, ""))
		})
	}
	return b.String()
}

// each calls for every row that a query finds.
func (d *Tables) each(query string, arg any, fn func(columns []string, values []any)) {
	d.Helper()
	rows, err := d.DB.QueryContext(d.Context(), query, arg)
	if err != nil {
		d.Fatal(err)
	}
	defer rows.Close() //nolint:errcheck // it was only read
	columns, err := rows.Columns()
	if err != nil {
		d.Fatal(err)
	}
	for rows.Next() {
		values, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			d.Fatal(err)
		}
		fn(columns, values)
	}
	if err := rows.Err(); err != nil {
		d.Fatal(err)
	}
}

// isTime tells by its name that a column holds a time.
func isTime(column string) bool {
	return strings.HasSuffix(column, "_at") || strings.HasSuffix(column, "_until") || column == "prev_claimed" || column == "token"
}

func (d *Tables) format(value any) string {
	d.Helper()
	switch v := value.(type) {
	case int64:
		return strconv.FormatInt(v, 10)
	case string:
		return strconv.Quote(v)
	case []byte:
		return "x" + hex.EncodeToString(v)
	}
	d.Fatalf("a value is a %T", value)
	return ""
}

func (d *Tables) parse(value string) any {
	d.Helper()
	var v any
	var err error
	switch {
	case strings.HasPrefix(value, `"`):
		v, err = strconv.Unquote(value)
	case strings.HasPrefix(value, "x"):
		v, err = hex.DecodeString(value[1:])
	default:
		v, err = strconv.ParseInt(value, 10, 64)
	}
	if err != nil {
		d.Fatalf("%s: %v", value, err)
	}
	return v
}

func (d *Tables) exec(text string, args ...any) {
	d.Helper()
	if _, err := d.DB.ExecContext(d.Context(), text, args...); err != nil {
		d.Fatal(fmt.Errorf("%s: %w", text, err))
	}
}

// Identity compares what a store keeps of an identity secret with what every version keeps in the table of settings.
func (d *Tables) Identity(s interface {
	driver.IdentityKeeper
	driver.IdentityReader
},
) {
	d.Helper()
	Identity(d, s)
	kept := map[string]string{}
	d.each("SELECT name, value FROM "+d.Prefix+"meta WHERE name <> "+d.Arg(1), "", func(_ []string, values []any) {
		kept[values[0].(string)] = values[1].(string)
	})
	// The number of the schema may grow without the format's, for an index say: then this one, and no other.
	if want := map[string]string{"schema": "1", "identity": hex.EncodeToString(Check[:])}; !maps.Equal(kept, want) {
		d.Errorf("the settings are %v, want %v", kept, want)
	}
}

// Schema compares what makes the tables with what made them in every version: name.sql. But for the number of the
// version, which is the last statement, each begins the next one.
func Schema(t *testing.T, name, text string) {
	t.Helper()
	for version := 1; version <= driver.FormatVersion; version++ {
		before := statements(File(t, version, name+".sql"))
		if now := statements(text); len(now) < len(before) || !slices.Equal(now[:len(before)], before) {
			t.Errorf("the tables of version %d are made by\n%s\nand were made by\n%s", version, text, File(t, version, name+".sql"))
		}
	}
}

func statements(text string) []string {
	all := strings.SplitAfter(text, ";\n")
	return all[:max(0, len(all)-2)]
}
