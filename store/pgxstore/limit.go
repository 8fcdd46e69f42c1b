package pgxstore

import (
	"fmt"
	"time"

	"github.com/everonce/everonce/driver"
)

// limit is the time that a transaction has. The zero limit is none.
type limit struct {
	timer *time.Timer
	until time.Time
}

// newLimit calls end when the time is over.
func newLimit(d time.Duration, end func()) limit {
	if d <= 0 {
		return limit{}
	}
	until := time.Now().Add(d)
	return limit{timer: time.AfterFunc(d, end), until: until}
}

// stop keeps the end from being called, and reports false where it is, or was, called.
func (l *limit) stop() bool { return l.timer == nil || l.timer.Stop() }

// reason gives an error that came after the time was over its reason.
func (l *limit) reason(err error) error {
	if err != nil && l.timer != nil && !time.Now().Before(l.until) {
		return fmt.Errorf("%w: %w", driver.ErrTxTooLong, err)
	}
	return err
}
