// Package transition is the life of a record as pure functions of the record, the request and the
// store's time. A store that can read and write one record atomically (memory, SQLite, a file, a
// replicated state machine) decides with them: it reads the record, calls the function of the method,
// writes what it returns, and commits. Stores that must decide inside a database's own statement
// are compared with them by the suite in driver/drivertest.
//
// None of them writes over what a newer version wrote, until that is gone by time: they refuse it with
// [driver.ErrNewerRecord].
//
// The functions never change the record that they are given, nor what its slices hold; a nil next says
// that there is nothing to write. All are safe for concurrent use.
//
// A record passed to them is the row as it stands, gone by time or not; nil where there is none. So a
// token grows across a record's end for as long as the row is there, and by the clock afterwards.
package transition

import (
	"time"

	"github.com/everonce/everonce/driver"
)

// nextToken returns a token above the previous one and not below the store's clock.
func nextToken(previous driver.Token, now time.Time) driver.Token {
	return max(previous+1, driver.Token(now.UnixMicro()))
}

// copyOf returns a copy to be changed, whose slices are those of the record, and are replaced, not written to.
func copyOf(rec *driver.Record) *driver.Record {
	next := *rec
	return &next
}

// held refuses with [everonce.ErrLeaseLost] unless the attempt with that token and nonce still has the
// record, lapsed or not; and a record of a newer version, which is not judged by what this one knows.
func held(rec *driver.Record, token driver.Token, nonce driver.Nonce) error {
	switch {
	case rec == nil:
		return driver.ErrLeaseLost
	case rec.Format > driver.FormatVersion:
		return driver.ErrNewerRecord
	case rec.State != driver.StateClaimed || rec.Token != token || rec.Nonce != nonce:
		return driver.ErrLeaseLost
	}
	return nil
}
