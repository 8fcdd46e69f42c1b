package pgxstore

import (
	"errors"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/everonce/everonce/internal/sqldb"
)

// A commit that rides in the same packets as the last write cannot wait for that write's answer: a write that found
// nothing to write must itself fail, so that the server skips the commit. This is done by a cast that fails. The text
// depends on the clock, or the planner would try the cast itself.
const nothingWritten = "everonce: nothing written"

func castToFail(why, as string) string {
	return "CAST('" + why + " at ' || clock_timestamp() AS " + as + ")"
}

// castFailed is the SQLSTATE of a cast that fails: invalid text representation.
const castFailed = "22P02"

// mustTexts are the statements' texts wrapped so that they fail where they affect no row.
type mustTexts struct{ texts sync.Map } // *sqldb.Statement → string

func (m *mustTexts) of(s *sqldb.Statement) string {
	if text, ok := m.texts.Load(s); ok {
		return text.(string)
	}
	text := failing(s.Text)
	m.texts.Store(s, text)
	return text
}

// insertsNothing ends an insert that leaves an existing row unchanged.
const insertsNothing = " ON CONFLICT (id) DO NOTHING RETURNING "

// failing makes a text fail where it affects no row. A text that ends in RETURNING is wrapped. A text that ends in
// "SELECT 1 FROM" a common table expression cannot be wrapped, because expressions that write must stand at the top. An
// insert that leaves an existing row unchanged becomes a plain insert, which is the cheapest: the primary key makes it
// fail, and the rest of its condition must hold.
func failing(text string) string {
	if insert, returned, ok := strings.Cut(text, insertsNothing); ok {
		if i := strings.LastIndex(insert, " WHERE "); i >= 0 {
			plain := insert[:i] + " WHERE CASE WHEN " + insert[i+len(" WHERE "):] + " THEN true ELSE " + castToFail(nothingWritten, "boolean") + " END"
			if returned != "1" { // it does more than to count
				plain += " RETURNING " + returned
			}
			return plain
		}
	}
	const last = " SELECT 1 FROM "
	written, with := "written", "WITH written AS ("+text+")"
	if i := strings.LastIndex(text, last); i >= 0 && !strings.ContainsAny(text[i+len(last):], " ()") {
		written, with = text[i+len(last):], text[:i]
	}
	return with + " SELECT CASE WHEN EXISTS (SELECT FROM " + written + ") THEN 1 ELSE " + castToFail(nothingWritten, "integer") + " END"
}

// isNothingWritten recognises the failed cast, and the insert of a record that already exists.
func (d *database) isNothingWritten(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return false
	}
	switch pgErr.Code {
	case castFailed:
		return strings.Contains(pgErr.Message, nothingWritten)
	case "23505":
		return pgErr.TableName == d.tables.prefix+"record" && pgErr.ConstraintName == d.tables.prefix+"record_pkey"
	}
	return false
}
