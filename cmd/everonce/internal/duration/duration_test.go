package duration

import (
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	for given, want := range map[string]time.Duration{
		"90d": 90 * day, "0d": 0, "30s": 30 * time.Second, "1h30m": 90 * time.Minute, "0": 0,
		"80000d": 80000 * day, "106751d": 106751 * day, // what is too long for its purpose, its purpose refuses
	} {
		if d, err := Parse(given); d != want || err != nil {
			t.Errorf("%s: %v, %v, want %v", given, d, err, want)
		}
	}
	for given, want := range map[string]error{
		"": errDuration, "d": errDuration, "90": errDuration, "-1d": errDuration, "-1s": errDuration, "1.5d": errDuration, "soon": errDuration,
		"106752d": errTooLong, "200000d": errTooLong, "99999999999999999999d": errTooLong,
	} {
		if d, err := Parse(given); err != want || d != 0 { //nolint:errorlint // the very one
			t.Errorf("%s: %v, %v, want %v", given, d, err, want)
		}
	}
}
