package sqldb

import (
	"strings"
	"testing"
)

// Whatever reads or changes rows asks for the session's settings, whether it has a condition or not. The rest are the
// statements that need not: they neither read nor change rows of everonce's tables.
func TestGuarded(t *testing.T) {
	for text, want := range map[string]string{
		"SELECT a FROM t":                                                     "SELECT a FROM t WHERE GUARD" + noLimit,
		"SELECT a FROM t WHERE b = 1 FOR UPDATE":                              "SELECT a FROM t WHERE GUARD AND b = 1" + noLimit + " FOR UPDATE",
		"SELECT max(a) FROM t GROUP BY b LIMIT 1":                             "SELECT max(a) FROM t WHERE GUARD GROUP BY b LIMIT 1",
		"INSERT INTO t (a) SELECT b FROM (SELECT 1) AS u":                     "INSERT INTO t (a) SELECT b FROM (SELECT 1) AS u WHERE GUARD",
		"INSERT IGNORE INTO t (a, b) VALUES (?1, (1 + 1))":                    "INSERT IGNORE INTO t (a, b) SELECT ?1, (1 + 1) FROM DUAL WHERE GUARD AND 1 = 1",
		"INSERT INTO t (a) VALUES (?1) ON DUPLICATE KEY UPDATE a = VALUES(a)": "INSERT INTO t (a) SELECT ?1 FROM DUAL WHERE GUARD AND 1 = 1 ON DUPLICATE KEY UPDATE a = VALUES(a)",
		"INSERT INTO t (a, b) VALUES (1, 0 + GUARD), (2, 0)":                  "INSERT INTO t (a, b) VALUES (1, 0 + GUARD), (2, 0)",
		"UPDATE t AS a STRAIGHT_JOIN u ON a.b = u.b SET a.c = 1":              "UPDATE t AS a STRAIGHT_JOIN u ON a.b = u.b SET a.c = 1 WHERE GUARD",
		"UPDATE t SET a = 1 WHERE b = 1":                                      "UPDATE t SET a = 1 WHERE GUARD AND b = 1",
		"DELETE a FROM t AS a STRAIGHT_JOIN u ON a.b = u.b":                   "DELETE a FROM t AS a STRAIGHT_JOIN u ON a.b = u.b WHERE GUARD",
		"/*M! SET STATEMENT x = 0 FOR */ DELETE FROM t WHERE b = 1":           "/*M! SET STATEMENT x = 0 FOR */ DELETE FROM t WHERE GUARD AND b = 1",
		"CREATE TABLE t (a int)":                                              "CREATE TABLE t (a int)",
		"SAVEPOINT a":                                                         "SAVEPOINT a",
	} {
		if got := strings.ReplaceAll(Guarded(strings.ReplaceAll(text, "GUARD", guard)), guard, "GUARD"); got != want {
			t.Errorf("%s:\n%s, want\n%s", text, got, want)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("several rows of VALUES that do not ask are no mistake")
		}
	}()
	Guarded("INSERT INTO t (a) VALUES (1), (2)")
}
