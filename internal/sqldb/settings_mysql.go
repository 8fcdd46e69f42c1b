package sqldb

import (
	"fmt"
	"strconv"
	"strings"
)

// A session of MySQL or MariaDB may have settings with which a statement means something else, or what it wrote is
// lost. Any connection of a pool may have others, from its URL, from the server, or by a SET of the application. So
// each statement asks for them itself, in a condition that is true or fails: that costs no round trip, and no
// connection and no moment is missed. See [Guarded].
//
// The condition must not depend on the time. A statement may run or wait for long, and where it is logged as text a
// replica runs it later. So the condition does not detect a timestamp that the session has set: it looks the same as a
// statement that began at that time.

// mysqlSetting is one of them.
type mysqlSetting struct {
	good string // true of a session that can be used
	// bad says what is wrong with another, and what to do about it.
	bad string
}

var mysqlSettings = []mysqlSetting{
	{"@@autocommit = 1", "autocommit is 0, with which claims would never commit (set it to 1, the default)"},
	{"@@completion_type = 'NO_CHAIN'", "completion_type is not NO_CHAIN, with which each COMMIT begins a transaction that nothing commits (set it to NO_CHAIN, the default)"},
	{
		"/*!80000 @@transaction_isolation *//*M! @@tx_isolation */ <> 'READ-UNCOMMITTED'",
		"the isolation is READ UNCOMMITTED, at which a duplicate could get a result that is undone later (set READ-COMMITTED or above)",
	},
	{"@@unique_checks = 1", "unique_checks is 0, with which a unique index may take a key twice (set it to 1, the default)"},
	{"@@foreign_key_checks = 1", "foreign_key_checks is 0, with which the steps of a deleted record stay (set it to 1, the default)"},
	{"@@sql_safe_updates = 0", "sql_safe_updates is 1, with which the server refuses some of everonce's statements (set it to 0, the default)"},
	{"@@sql_log_bin = 1", "sql_log_bin is 0, with which no replica gets what is written (set it to 1, the default)"},
	{
		"@@character_set_client = @@character_set_connection",
		"character_set_connection is not character_set_client, with which keys are converted, and different ones may become the same (use SET NAMES, or charset in the data source name)",
	},
}

// firstGuard is the number in the guard of the first setting. Twice a number from there on is out of the range of all:
// MySQL names no variable in that error, but the number.
const firstGuard = uint64(1<<64 - 1000)

// guard is true in a session that can be used. In another it fails, with the number of the setting.
var guard = func() string {
	parts := make([]string, len(mysqlSettings))
	for i, s := range mysqlSettings {
		parts[i] = fmt.Sprintf("%d * (2 - (%s))", firstGuard+uint64(i), s.good)
	}
	return strings.Join(parts, " AND ")
}()

// Unguarded returns what is wrong with the session in which the guard of a statement failed, by the text of the
// server's error. It is empty if that is another error.
func Unguarded(message string) string {
	for i, s := range mysqlSettings {
		if strings.Contains(message, strconv.FormatUint(firstGuard+uint64(i), 10)) {
			return s.bad
		}
	}
	return ""
}

// noLimit is larger than every table.
const noLimit = " LIMIT 18446744073709551615"

// Guarded returns the text of a statement of MySQL or MariaDB so that it fails in a session that cannot be used, and,
// if it is a SELECT, so that sql_select_limit does not limit it. It panics if that is impossible: an INSERT of several
// rows of VALUES must ask with {alive}. A statement that neither reads nor changes rows, such as CREATE TABLE or
// SAVEPOINT, is returned unchanged.
func Guarded(text string) string {
	prefix, rest, found := strings.Cut(text, " FOR */ ")
	if found {
		prefix, text = prefix+" FOR */ ", rest
	} else {
		prefix = ""
	}
	verb, _, _ := strings.Cut(text, " ")
	switch verb {
	case "SELECT":
		if outside(text, " LIMIT ") < 0 {
			text = inserted(text, noLimit, " FOR UPDATE", " LOCK IN ")
		}
	case "INSERT":
		if !strings.Contains(text, guard) {
			text = selecting(text)
		}
	case "UPDATE", "DELETE", "WITH":
	default:
		return prefix + text
	}
	const where = " WHERE "
	if at := outside(text, where); at >= 0 {
		text = text[:at] + where + guard + " AND " + text[at+len(where):]
	} else if !strings.Contains(text, guard) {
		text = inserted(text, where+guard, " GROUP BY ", " ORDER BY ", " LIMIT ", " ON DUPLICATE ")
	}
	return prefix + text
}

// GuardedValue is a value for an INSERT of VALUES, which then fails in a session that cannot be used.
func GuardedValue(value string) string { return "CASE WHEN " + guard + " THEN " + value + " END" }

// selecting turns an INSERT of one row of VALUES, which can have no condition, into one of a SELECT.
func selecting(text string) string {
	at := outside(text, " VALUES (")
	if at < 0 {
		return text
	}
	before, after := text[:at], text[at+len(" VALUES "):]
	end := outside(after+" ", " ")
	row, rest := after[:end], after[end:]
	if strings.HasSuffix(row, ",") {
		panic("sqldb: an INSERT of several rows of VALUES does not ask for the session's settings: " + before)
	}
	return before + " SELECT " + row[1:len(row)-1] + " FROM DUAL WHERE 1 = 1" + rest
}

// inserted puts a part before the first of these words, or at the end.
func inserted(text, part string, words ...string) string {
	at := len(text)
	for _, word := range words {
		if n := outside(text, word); n >= 0 {
			at = min(at, n)
		}
	}
	return text[:at] + part + text[at:]
}

// outside is where a word stands outside of all parentheses, or -1. None of our texts has a parenthesis in quotes.
func outside(text, word string) int {
	depth := 0
	for i := range len(text) {
		switch text[i] {
		case '(':
			depth++
		case ')':
			depth--
		case ' ':
			if depth == 0 && strings.HasPrefix(text[i:], word) {
				return i
			}
		}
	}
	return -1
}
