package sqlstore

import (
	"testing"
	"time"
)

func TestLeaseBoundFollowsWhatIsInUse(t *testing.T) {
	var b leaseBound
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	want := func(when string, lease time.Duration) {
		t.Helper()
		if got := b.shortest(now); got != lease {
			t.Errorf("%s: the shortest lease is %v, want %v", when, got, lease)
		}
	}
	want("before any", defaultLease)
	b.noted(time.Minute, now)
	want("longer than the default", time.Minute)
	b.noted(time.Second, now)
	want("after a shorter one", time.Second)
	now = now.Add(2 * time.Second)
	want("when the shorter one has passed", time.Minute)

	for hours := 5; hours > 0; hours-- { // more than there is room for
		b.noted(time.Duration(hours)*time.Hour, now)
	}
	want("the shortest of many", time.Minute)
	now = now.Add(2 * time.Minute)
	want("the shortest of what is left", time.Hour)
}

func TestLeaseBoundLimitsOnlyWhereThereIsOneWriter(t *testing.T) {
	var b leaseBound
	for _, c := range []struct {
		oneWriter     bool
		timeout, want time.Duration
	}{
		{false, time.Hour, time.Hour},
		{false, 0, 0},
		{true, time.Hour, defaultLease / 3},
		{true, 0, defaultLease / 3},
		{true, time.Second, time.Second},
	} {
		if got := b.bound(c.oneWriter, c.timeout); got != c.want {
			t.Errorf("bound(%v, %v) = %v, want %v", c.oneWriter, c.timeout, got, c.want)
		}
	}
	b.see(0)
	b.see(3 * time.Second)
	if got := b.bound(true, time.Hour); got != time.Second {
		t.Errorf("with a lease of 3 s the bound is %v, want 1 s", got)
	}
	b.see(time.Millisecond)
	if got := b.bound(true, time.Hour); got != leastBound {
		t.Errorf("with a lease of 1 ms the bound is %v, want %v", got, leastBound)
	}
	if got := b.bound(true, time.Millisecond); got != time.Millisecond {
		t.Errorf("with a timeout of 1 ms the bound is %v", got)
	}
}
