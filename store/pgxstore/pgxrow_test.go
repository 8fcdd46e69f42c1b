package pgxstore_test

import (
	"bytes"
	"context"
	"math"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce/store/pgxstore"
)

// scanned is one row of each kind of column that the engine has.
type scanned struct {
	ints  [9]int64
	texts [3]string
	bytes [3][]byte
}

func (s *scanned) dest() (dest []any) {
	for i := range s.ints {
		dest = append(dest, &s.ints[i])
	}
	for i := range s.texts {
		dest = append(dest, &s.texts[i])
	}
	for i := range s.bytes {
		dest = append(dest, &s.bytes[i])
	}
	return dest
}

const scannedColumns = `SELECT 32767::smallint, (-32768)::smallint, 2147483647::int, (-2147483648)::int,
	9223372036854775807::bigint, (-9223372036854775808)::bigint, NULL::smallint, NULL::int, NULL::bigint,
	'ü\x'::text, ''::text, NULL::text, '\x00ff27'::bytea, ''::bytea, NULL::bytea`

// Every mode of pgx reads the same, and those that answer in the binary format do so by our own decoder.
func TestRowColumns(t *testing.T) {
	t.Parallel()
	want := scanned{
		ints:  [...]int64{math.MaxInt16, math.MinInt16, math.MaxInt32, math.MinInt32, math.MaxInt64, math.MinInt64, 0, 0, 0},
		texts: [...]string{`ü\x`, "", ""}, bytes: [...][]byte{{0, 0xff, '\''}, {}, nil},
	}
	for mode, binary := range map[pgx.QueryExecMode]bool{
		pgx.QueryExecModeCacheStatement: true, pgx.QueryExecModeCacheDescribe: true, pgx.QueryExecModeDescribeExec: true,
		pgx.QueryExecModeExec: false, pgx.QueryExecModeSimpleProtocol: false,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			inRow(t, mode, scannedColumns, func(rows pgx.Rows) {
				// earlier values are written over, with NULL too
				got := scanned{
					ints: [...]int64{7, 7, 7, 7, 7, 7, 7, 7, 7}, texts: [...]string{"x", "x", "x"}, bytes: [...][]byte{{1}, {1}, {1}},
				}
				if ok := pgxstore.ScanBinary(rows, got.dest()...); ok != binary {
					t.Errorf("read without pgx: %v, want %v", ok, binary)
				}
				noErr(t, pgxstore.RowOf(rows).Scan(got.dest()...))
				for _, raw := range rows.RawValues() { // which is pgx's buffer: what was read does not lie in it
					clear(raw)
				}
				if got.ints != want.ints || got.texts != want.texts {
					t.Errorf("read %v %q, want %v %q", got.ints, got.texts, want.ints, want.texts)
				}
				for i, b := range got.bytes {
					if !bytes.Equal(b, want.bytes[i]) || (b == nil) != (want.bytes[i] == nil) {
						t.Errorf("bytes %d: read %#v, want %#v", i, b, want.bytes[i])
					}
				}
			})
		})
	}
}

// Columns of other types than the engine's are read, or refused, by pgx.
func TestRowColumnsOfOtherTypes(t *testing.T) {
	t.Parallel()
	inRow(t, pgx.QueryExecModeCacheStatement, "SELECT 42::numeric, 'v'::varchar, true, 7::bigint", func(rows pgx.Rows) {
		var n, seven int64
		var text string
		var yes bool
		noErr(t, pgxstore.RowOf(rows).Scan(&n, &text, &yes, &seven))
		if n != 42 || text != "v" || !yes || seven != 7 {
			t.Errorf("read %v %q %v %v", n, text, yes, seven)
		}
	})
	for name, dest := range map[string][]any{
		"too few":       {new(int64)},
		"of other kind": {new(int64), new(bool)},
	} {
		inRow(t, pgx.QueryExecModeCacheStatement, "SELECT 1::bigint, 2::bigint", func(rows pgx.Rows) {
			if err := pgxstore.RowOf(rows).Scan(dest...); err == nil {
				t.Errorf("%s: no error", name)
			}
		})
	}
}

// inRow calls fn in the only row of an answer.
func inRow(t *testing.T, mode pgx.QueryExecMode, text string, fn func(pgx.Rows)) {
	t.Helper()
	rows, err := admin(t).Query(context.Background(), text, mode)
	noErr(t, err)
	defer rows.Close()
	if !rows.Next() {
		t.Fatal("no row:", rows.Err())
	}
	fn(rows)
}

// The destinations stay the caller's, where pgx has to read them too.
func TestRowLeavesTheDestinations(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeSimpleProtocol} {
		inRow(t, mode, "SELECT 7::bigint, 'x'::text, true", func(rows pgx.Rows) {
			dest := []any{new(int64), new(string), new(bool)}
			noErr(t, pgxstore.RowOf(rows).Scan(dest...))
			n, isInt := dest[0].(*int64)
			s, isText := dest[1].(*string)
			if !isInt || !isText || *n != 7 || *s != "x" {
				t.Errorf("%v: the destinations are now %T and %T", mode, dest[0], dest[1])
			}
		})
	}
}
