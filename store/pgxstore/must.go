package pgxstore

import (
	"errors"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/everonce/everonce/store/sqlstore"
)

// A commit that rides in the same packets as the last write can not wait for that write's answer: a
// write that found nothing to write must fail by itself, so that the server skips the commit. This is
// done by a cast that fails. The text depends on the clock, or the planner would try the cast itself.
const (
	nothingWritten    = "everonce: nothing written"
	castNothingToFail = "CAST('" + nothingWritten + " at ' || clock_timestamp() AS integer)"
)

// mustTexts are the statements' texts wrapped so that they fail where they affect no row.
type mustTexts struct{ texts sync.Map } // *sqlstore.Statement → string

func (m *mustTexts) of(s *sqlstore.Statement) string {
	if text, ok := m.texts.Load(s); ok {
		return text.(string)
	}
	text := failing(s.Text)
	m.texts.Store(s, text)
	return text
}

// failing wraps a text that ends in "RETURNING 1", or in "SELECT 1 FROM" a common table expression that
// wrote. The latter can not be put into one more: writing ones stand at the top.
func failing(text string) string {
	const last = " SELECT 1 FROM "
	written, with := "written", "WITH written AS ("+text+")"
	if i := strings.LastIndex(text, last); i >= 0 && !strings.ContainsAny(text[i+len(last):], " ()") {
		written, with = text[i+len(last):], text[:i]
	}
	return with + " SELECT CASE WHEN EXISTS (SELECT FROM " + written + ") THEN 1 ELSE " + castNothingToFail + " END"
}

// isNothingWritten recognises the failed cast: 22P02 is "invalid text representation".
func isNothingWritten(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pgErr.Code == "22P02" && strings.Contains(pgErr.Message, nothingWritten)
}
