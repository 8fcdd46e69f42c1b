package sqlitestore

import "strings"

// nameless takes names and types from the columns that a statement answers, where these are a plain list: the
// driver asks SQLite for both, and copies them, with every answer, which costs more than to find the row. A column behind a
// plus has the same value, and no declared type.
func nameless(text string) string {
	list, rest, found := strings.Cut(text, " FROM ")
	columns, isSelect := strings.CutPrefix(list, "SELECT ")
	if !found || !isSelect || strings.ContainsAny(columns, "()'\"") {
		return text
	}
	return `SELECT +` + strings.ReplaceAll(columns, ", ", ` AS "", +`) + ` AS "" FROM ` + rest
}
