package sqldb

import (
	"fmt"
	"time"

	"github.com/everonce/everonce/driver"
)

// Limit is the time that a transaction has. The zero Limit sets no limit.
type Limit struct {
	timer *time.Timer
	until time.Time
}

// NewLimit calls end when the time is over.
func NewLimit(d time.Duration, end func()) Limit {
	if d <= 0 {
		return Limit{}
	}
	until := time.Now().Add(d)
	return Limit{timer: time.AfterFunc(d, end), until: until}
}

// Stop keeps the end from being called, and reports false where it is, or was, called.
func (l *Limit) Stop() bool { return l.timer == nil || l.timer.Stop() }

// Reason gives an error that came after the time was over its reason.
func (l *Limit) Reason(err error) error {
	if err != nil && l.timer != nil && !time.Now().Before(l.until) {
		return fmt.Errorf("%w: %w", driver.ErrTxTooLong, err)
	}
	return err
}
