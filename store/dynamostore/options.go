package dynamostore

import (
	"fmt"
	"strings"
	"time"

	"github.com/everonce/everonce/driver"
)

// Options are the options of a store. The zero value of each field is its default.
type Options struct {
	// Table holds the records. Two stores with the same table share their records. Default "everonce".
	Table string
	// ClockSkew is the most by which the clocks of the processes that share the table may differ. Every lease is held
	// that much longer, because DynamoDB has no clock that a write could be compared with: without it, a process whose
	// clock is ahead would take over an operation that is still running. If clocks differ by more, two attempts may run
	// at once, and the token decides whose result is recorded. Clocks that are kept by NTP differ by far less than the
	// default, which is little beside a lease. A negative value is no margin, for processes of one machine. Default 1
	// s.
	ClockSkew time.Duration
}

const (
	defaultTable = "everonce"
	defaultSkew  = time.Second
)

// Validate returns the error with which [New] would refuse the options. It does not connect to anything.
func (o *Options) Validate() error {
	_, err := o.settings()
	return err
}

func (o *Options) settings() (set Options, err error) {
	if o != nil {
		set = *o
	}
	if set.Table == "" {
		set.Table = defaultTable
	}
	switch {
	case set.ClockSkew == 0:
		set.ClockSkew = defaultSkew
	case set.ClockSkew < 0:
		set.ClockSkew = 0
	}
	switch {
	case set.ClockSkew > time.Hour/2:
		err = fmt.Errorf("dynamostore: %w: Options.ClockSkew is %v, the limit is 30m", driver.ErrInvalidArgument, set.ClockSkew)
	case len(set.Table) < 3 || len(set.Table) > 255:
		err = fmt.Errorf("dynamostore: %w: Options.Table has %d bytes, want 3 to 255", driver.ErrInvalidArgument, len(set.Table))
	case strings.Trim(set.Table, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") != "":
		err = fmt.Errorf("dynamostore: %w: Options.Table may only contain a-z, A-Z, 0-9, _, . and -", driver.ErrInvalidArgument)
	}
	return set, err
}
