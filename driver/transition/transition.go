// Package transition implements the state changes of a record as pure functions of the record, the request and the
// store's time. A store that can read and write one record atomically (memory, SQLite, a file, a replicated state
// machine) uses them: it reads the record, calls the function of the method, writes the record that the function
// returns, and commits. The suite in driver/drivertest compares stores that decide inside a database's statement with
// these functions.
//
// Pass the record as it is stored, even if it is gone, and nil for no record: tokens then increase from the old
// record's token while the row exists, and by the clock afterwards. The functions never change the record or the
// contents of its slices. A nil next record means that there is nothing to write.
//
// No function overwrites a record of a newer version that is not gone: it returns [driver.ErrNewerRecord]. All are safe
// for concurrent use.
package transition

import (
	"time"

	"github.com/everonce/everonce/driver"
)

// nextToken returns a token above the previous one and not below the store's clock.
func nextToken(previous driver.Token, now time.Time) driver.Token {
	return max(previous+1, driver.Token(now.UnixMicro()))
}

// copyOf returns a copy to change. It shares the record's slices: replace them, do not write to them.
func copyOf(rec *driver.Record) *driver.Record {
	next := *rec
	return &next
}

// held returns [driver.ErrLeaseLost] unless the attempt with that token and nonce still holds the record, even with a
// lapsed lease, and [driver.ErrNewerRecord] for a record of a newer version.
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
