package duration

import (
	"testing"
	"time"
)

// FuzzParse parses any text as a duration. An accepted one is not negative, and survives being written and parsed
// again: the next start reads the file that --print-config writes.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"500ms", "30s", "24h", "90d", "0", "0d", "-1s", "-0s", "1d2h", "65535d", "65536d", "2562047h47m16.854775807s", "1h0m0s", "µs", "1e3s", " 1s", "+1s", "+1d", "٣d"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := Parse(text)
		if err != nil {
			if d != 0 || err != errDuration && err != errTooLong { //nolint:errorlint // the very ones, which do not repeat what was given
				t.Errorf("%v, %v: %q", d, err, text)
			}
			return
		}
		if d < 0 || d > longest {
			t.Fatalf("%q is %v", text, d)
		}
		v := Value(d)
		again, err := Parse(v.String())
		if err != nil || again != d {
			t.Errorf("%q is %v, which is written %q and read as %v, %v", text, d, v.String(), again, err)
		}
	})
}

func TestParse(t *testing.T) {
	for given, want := range map[string]time.Duration{
		"90d": 90 * day, "0d": 0, "30s": 30 * time.Second, "1h30m": 90 * time.Minute, "0": 0,
		"36500d": longest, "876000h": longest,
	} {
		if d, err := Parse(given); d != want || err != nil {
			t.Errorf("%s: %v, %v, want %v", given, d, err, want)
		}
	}
	for given, want := range map[string]error{
		"": errDuration, "d": errDuration, "1d12h": errDuration, "-1d": errDuration, "90": errDuration, "-1s": errDuration, "1.5d": errDuration, "soon": errDuration,
		"36501d": errTooLong, "876000h1ns": errTooLong, "2000000h": errTooLong, "106752d": errTooLong, "200000d": errTooLong, "99999999999999999999d": errTooLong,
	} {
		if d, err := Parse(given); err != want || d != 0 { //nolint:errorlint // the very one
			t.Errorf("%s: %v, %v, want %v", given, d, err, want)
		}
	}
}
