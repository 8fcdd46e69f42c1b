package client

import (
	"math"
	"net/http"
	"reflect"
	"testing"
	"time"
)

// The documented defaults of the options.
func TestTransportDefaults(t *testing.T) {
	s, err := settingsOf(nil)
	if err != nil {
		t.Fatal(err)
	}
	want := Options{
		KeyHeader: "Idempotency-Key", Marker: "Idempotent-Replayed", Methods: []string{"POST", "PATCH"}, RetryStatuses: DefaultRetryStatuses(),
		MaxAttempts: 10, MaxElapsed: 2 * time.Minute, AttemptTimeout: 30 * time.Second, Backoff: 100 * time.Millisecond, MaxBackoff: 10 * time.Second,
		BufferAnswer: 1 << 20,
	}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("they are %+v, want %+v", s, want)
	}
}

// Full jitter: anything from nothing to a bound that doubles, and stays at the most.
func TestTransportBackoff(t *testing.T) {
	b := backoff{100 * time.Millisecond, 10 * time.Second}
	for n, bound := range map[int]time.Duration{
		1: 100 * time.Millisecond, 2: 200 * time.Millisecond, 5: 1600 * time.Millisecond, 7: 6400 * time.Millisecond,
		8: 10 * time.Second, 9: 10 * time.Second, 63: 10 * time.Second, 64: 10 * time.Second, 1000: 10 * time.Second,
	} {
		low, high := time.Duration(math.MaxInt64), time.Duration(0)
		for range 2000 {
			p := b.pause(n, 0)
			low, high = min(low, p), max(high, p)
		}
		if low < 0 || low > bound/10 || high > bound || high < bound*9/10 {
			t.Errorf("after attempt %d the pauses were %v to %v, want them from 0 to %v", n, low, high, bound)
		}
	}
}

// A server's own time is kept, with a little on top, whatever the backoff would be.
func TestTransportBackoffKeepsRetryAfter(t *testing.T) {
	b := backoff{100 * time.Millisecond, time.Second}
	for _, after := range []time.Duration{time.Nanosecond, time.Second, time.Hour, math.MaxInt64 - 1, math.MaxInt64} {
		var most time.Duration
		for range 1000 {
			p := b.pause(9, after)
			if p < after || p-after > b.first {
				t.Fatalf("a Retry-After of %v became a pause of %v", after, p)
			}
			most = max(most, p-after)
		}
		if after <= time.Hour && most < b.first*9/10 {
			t.Errorf("on top of a Retry-After of %v is no more than %v: clients with the same Retry-After come back together", after, most)
		}
	}
}

// Seconds where milliseconds were meant (powertools-java#1281): Retry-After has seconds.
func TestTransportTrapSecondsWhereMillisecondsWereMeant(t *testing.T) {
	if got := retryAfterOf(http.Header{"Retry-After": {"2"}}, time.Now()); got != 2*time.Second {
		t.Errorf("Retry-After: 2 was read as %v", got)
	}
}

func TestTransportRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)
	in := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	for name, tc := range map[string]struct {
		value, date string
		want        time.Duration
	}{
		"seconds":                          {value: "120", want: 2 * time.Minute},
		"blanks":                           {value: " 3 ", want: 3 * time.Second},
		"zero":                             {value: "0"},
		"none":                             {},
		"too many seconds for a duration":  {value: "9999999999999", want: math.MaxInt64},
		"too many seconds for a number":    {value: "99999999999999999999999", want: math.MaxInt64},
		"a date":                           {value: in(time.Minute), want: time.Minute},
		"a date that has passed":           {value: in(-time.Minute)},
		"a date by a clock that is behind": {value: in(-time.Hour), date: in(-time.Hour - time.Minute), want: time.Minute},
		"a date by a clock that is ahead":  {value: in(time.Hour), date: in(time.Hour - time.Minute), want: time.Minute},
		"a date and no sense":              {value: in(time.Minute), date: "yesterday", want: time.Minute},
		"a date of RFC 850":                {value: now.Add(time.Minute).Format("Monday, 02-Jan-06 15:04:05 GMT"), want: time.Minute},
		"a fraction":                       {value: "1.5"},
		"a negative number":                {value: "-5"},
		"a word":                           {value: "soon"},
	} {
		h := http.Header{}
		if tc.value != "" {
			h.Set("Retry-After", tc.value)
		}
		if tc.date != "" {
			h.Set("Date", tc.date)
		}
		if got := retryAfterOf(h, now); got != tc.want {
			t.Errorf("%s: %q was read as %v, want %v", name, tc.value, got, tc.want)
		}
	}
}

func FuzzTransportRetryAfter(f *testing.F) {
	for _, seed := range []string{"1", "", "99999999999999999999", "Sat, 21 Nov 2026 07:00:00 GMT", "-1", "1e9"} {
		f.Add(seed, "Sat, 21 Nov 2026 07:00:00 GMT")
	}
	f.Fuzz(func(t *testing.T, value, date string) {
		got := retryAfterOf(http.Header{"Retry-After": {value}, "Date": {date}}, time.Now())
		if p := (backoff{time.Second, time.Minute}).pause(1, got); got < 0 || p < got {
			t.Errorf("%q at %q was read as %v, which pauses for %v", value, date, got, p)
		}
	})
}
