package sqlitestore

import (
	"strings"
	"testing"
)

// TestNamelessColumns: a text that is not understood is unchanged.
func TestNamelessColumns(t *testing.T) {
	for text, want := range map[string]string{
		"SELECT ?2, 1, id FROM t WHERE id = ?1": `SELECT +?2 AS "", +1 AS "", +id AS "" FROM t WHERE id = ?1`,
		"SELECT max(a, b) FROM t":               "SELECT max(a, b) FROM t",
		"SELECT 'a, b' FROM t":                  "SELECT 'a, b' FROM t",
		"DELETE FROM t WHERE id = ?1":           "DELETE FROM t WHERE id = ?1",
		"SELECT 1":                              "SELECT 1",
	} {
		if got := nameless(text); got != want {
			t.Errorf("%s became %s, want %s", text, got, want)
		}
	}
}

// TestReadAnswersNoNames: the statement that answers duplicates is one of those that are understood.
func TestReadAnswersNoNames(t *testing.T) {
	s := openTest(t, nil)
	if text := s.db.text.Read.Text; !strings.HasPrefix(text, `SELECT +?2 AS "", `) {
		t.Fatalf("the text still has the names: %s", text)
	}
}
