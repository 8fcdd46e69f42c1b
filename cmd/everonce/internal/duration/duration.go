// Package duration reads and writes durations as people give them to the program: retentions are in days.
package duration

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

const (
	day     = 24 * time.Hour
	longest = 36500 * day // sums of them, and of times, do not overflow
)

var (
	errDuration = errors.New("must be a duration like 500ms, 30s, 24h or 90d")
	errTooLong  = errors.New("must be at most 36500d, which is a hundred years")
)

// Parse reads a duration that is not negative. Days may be written too. The error does not repeat what was given.
func Parse(s string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		switch n, err := strconv.ParseUint(days, 10, 64); {
		case errors.Is(err, strconv.ErrRange), err == nil && n > uint64(longest/day):
			return 0, errTooLong
		case err == nil:
			return time.Duration(n) * day, nil //nolint:gosec // bounded above
		}
	}
	switch d, err := time.ParseDuration(s); {
	case err != nil, d < 0:
		return 0, errDuration
	case d > longest:
		return 0, errTooLong
	default:
		return d, nil
	}
}

// Value is a duration as a flag takes it: see [Parse].
type Value time.Duration

// Set implements pflag.Value.
func (v *Value) Set(s string) error {
	d, err := Parse(s)
	if err == nil {
		*v = Value(d)
	}
	return err
}

// String implements pflag.Value.
func (v *Value) String() string {
	d := time.Duration(*v)
	if d >= 2*day && d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} { // 2m0s, 24h0m0s
		if strings.HasSuffix(s, zero) {
			s = s[:len(s)-2]
		}
	}
	return s
}

// Type implements pflag.Value.
func (*Value) Type() string { return "duration" }
