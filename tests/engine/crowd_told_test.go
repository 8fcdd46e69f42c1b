package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// A claim that is taken back wakes who waits for it, as every other end does.
func TestWokenByAClaimThatIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Refuse, nil)
		ctx, cancel := context.WithCancel(t.Context())
		s.on("Claim", 1, func(_ context.Context, call func() error) error {
			err := call()
			time.Sleep(atNoPoll)
			cancel() // the caller goes as the answer comes
			return err
		})
		go func() { _, _ = everonce.Do(ctx, r, keyOf("x"), never(t), everonce.WithLease(time.Minute)) }()
		synctest.Wait()
		start := time.Now()
		do(t, r, keyOf("x"), returns("v", nil), everonce.Executed, nil, everonce.WithWait(time.Hour))
		checkEqual(t, "it waited for", time.Since(start), atNoPoll)
	})
}

// So does a settlement of this receiver.
func TestWokenByASettlement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Refuse, nil)
		diedIn(t, s, keyOf("x"), time.Hour)
		start := time.Now()
		time.AfterFunc(atNoPoll, func() {
			checkErr(t, r.Settle(t.Context(), keyOf("x"), everonce.Settlement{Verdict: everonce.SettleDone, Value: "v", Force: true}), nil)
		})
		do(t, r, keyOf("x"), never(t), everonce.Replayed, nil, everonce.WithWait(time.Hour))
		checkEqual(t, "it waited for", time.Since(start), atNoPoll)
	})
}

// hasty is a store whose word comes at once, whatever runs.
type hasty struct{ *faultStore }

func (s hasty) Watch(context.Context, driver.WatchRequest) (driver.WatchResult, error) {
	ended := make(chan struct{})
	close(ended)
	return driver.WatchResult{Ended: ended, Stop: func() {}}, nil
}

// Word that comes although nothing has ended does not make those who wait ask without a pause.
func TestWordThatComesForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hasty{newFaultStore()}
		r := newReceiver(t, &s, everonce.Refuse, nil)
		diedIn(t, s, keyOf("x"), time.Hour)
		s.on("Claim", 0, func(_ context.Context, call func() error) error {
			if s.count("Claim") > 5000 {
				return driver.ErrCorruptRecord // ends a loop without a pause
			}
			return call()
		})
		do(t, r, keyOf("x"), never(t), everonce.InProgress, everonce.ErrInProgress, everonce.WithWait(10*time.Second))
		if n := s.count("Claim"); n > 60 {
			t.Errorf("it asked %d times in 10 s", n)
		}
	})
}
