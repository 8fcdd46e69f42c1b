package sqlstore

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/everonce/everonce/internal/sqldb"
)

// dialects are the kinds: with the process's clock and statements that belong together, with the database's clock and
// one statement for each transition, and such a one that numbers its transactions.
func dialects() map[string]Dialect {
	place := func(n int, kind sqldb.ArgKind) string {
		return "$" + strconv.Itoa(n) + [...]string{"::i", "::t", "::b"}[kind]
	}
	table := func(name string) string { return name[:1] + "_" }
	one := Dialect{
		Dialect: &sqldb.Dialect{
			Placeholder: place, Now: "THECLOCK", OneStatement: true, Arrays: true, SkipLocked: "SKIPLOCKED", Table: table,
		},
		Record: "r_", Step: "s_", Meta: "m_", Greatest: "greatest",
		TryLock: func(id string) string { return "THELOCK(" + id + ")" },
		RowID:   "ctid", RowIDType: "tid",
	}
	plain := Dialect{
		Dialect: &sqldb.Dialect{Placeholder: place, Clock: time.Now, Table: table},
		Record:  "r_", Step: "s_", Meta: "m_", Greatest: "max", RowID: "rowid", RowIDType: "INTEGER",
	}
	return map[string]Dialect{"plain": plain, "one statement": one}
}

var argument = regexp.MustCompile(`\$(\d+)::([itb])`)

// Every argument of a text has one type wherever it stands, and there is no gap between them: else a
// driver would be handed arguments that the text does not know.
func TestStatementsNameTheirArgumentsWithoutGaps(t *testing.T) {
	for name, d := range dialects() {
		for _, st := range NewStatements(d).All() {
			kinds := map[int]string{}
			highest := 0
			for _, m := range argument.FindAllStringSubmatch(st.Text, -1) {
				n, err := strconv.Atoi(m[1])
				if err != nil {
					t.Fatal(err)
				}
				highest = max(highest, n)
				if kind, ok := kinds[n]; ok && kind != m[2] {
					t.Errorf("%s: %s: argument %d is %s and %s", name, st.Name, n, kind, m[2])
				}
				kinds[n] = m[2]
			}
			for n := 1; n <= highest; n++ {
				if kinds[n] == "" {
					t.Errorf("%s: %s: there is no argument %d of %d", name, st.Name, n, highest)
				}
			}
			if strings.ContainsAny(st.Text, "{}") {
				t.Errorf("%s: %s: a template is left: %s", name, st.Name, st.Text)
			}
		}
	}
}

func TestTheDatabasesClockIsReadOncePerStatement(t *testing.T) {
	for _, st := range NewStatements(dialects()["one statement"]).All() {
		if n := strings.Count(st.Text, "THECLOCK"); n > 1 {
			t.Errorf("%s reads the clock %d times", st.Name, n)
		}
	}
}

func TestEveryWriteGrowsTheRevision(t *testing.T) {
	for name, d := range dialects() {
		for _, st := range NewStatements(d).All() {
			if strings.Contains(st.Text, "UPDATE r_ ") && !strings.Contains(st.Text, "rev + 1") {
				t.Errorf("%s: %s changes a record and not its revision", name, st.Name)
			}
		}
	}
}

func TestNoStatementPurgesWithoutItsPredicate(t *testing.T) {
	for name, d := range dialects() {
		s := NewStatements(d)
		for _, st := range []*sqldb.Statement{s.PurgeRecords, s.PurgeResults} {
			// Behind the choice of what is due, the write asks again.
			at := strings.LastIndex(st.Text, "LIMIT")
			if at < 0 || !strings.Contains(st.Text[at:], "purge_at") {
				t.Errorf("%s: %s does not repeat its predicate: %s", name, st.Name, st.Text)
			}
		}
	}
}

func TestTheKeyIsLockedWhereClaimsAreMade(t *testing.T) {
	s := NewStatements(dialects()["one statement"])
	for _, st := range []*sqldb.Statement{s.Claim, s.ReadLocked, s.ReadLockedAll, s.Swap} {
		if !strings.Contains(st.Text, "THELOCK") {
			t.Errorf("%s does not lock the key", st.Name)
		}
	}
	for _, st := range []*sqldb.Statement{s.Read, s.Complete, s.Release, s.Renew} {
		if strings.Contains(st.Text, "THELOCK") {
			t.Errorf("%s locks the key", st.Name)
		}
	}
}

func TestSwapKindsMatchTheColumns(t *testing.T) {
	if n := len(strings.Split(SwapColumns, ", ")); n != len(swapKinds) {
		t.Errorf("there are %d columns and %d kinds", n, len(swapKinds))
	}
}
