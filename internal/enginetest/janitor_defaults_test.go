package enginetest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce/driver"
)

// A janitor without options uses the documented defaults, and two of them do not keep step.
func TestJanitorDefaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &moreStore{faultStore: newFaultStore(), more: 2}
		s.on("Purge", 0, func(ctx context.Context, call func() error) error {
			if end, ok := ctx.Deadline(); !ok || time.Until(end) != 30*time.Second {
				t.Errorf("a batch has %v", time.Until(end))
			}
			return call()
		})
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(20*time.Minute, cancel)
		done := startJanitor(ctx, t, s, nil)
		<-done
		at := s.times("Purge")
		for _, req := range requests[driver.PurgeRequest](&s.faults, "Purge") {
			checkEqual(t, "Limit", req.Limit, 500)
		}
		checkEqual(t, "the pause between two batches", at[1].Sub(at[0]), 10*time.Millisecond)
		pauses := map[time.Duration]bool{}
		for i := 3; i < len(at); i++ { // three batches in the first round, one in each of the others
			pause := at[i].Sub(at[i-1])
			pauses[pause] = true
			if pause < 30*time.Second || pause > time.Minute {
				t.Errorf("%v between two rounds", pause)
			}
		}
		if len(pauses) < 2 {
			t.Error("all pauses are the same")
		}

		// Told to stop, it begins no other batch.
		s.more = 1 << 30
		before := s.count("Purge")
		ctx, cancel = context.WithCancel(context.Background())
		s.on("Purge", before+5, func(_ context.Context, call func() error) error { cancel(); return call() })
		done = startJanitor(ctx, t, s, nil)
		<-done
		checkEqual(t, "batches", s.count("Purge")-before, 5)
	})
}

// moreStore has more to remove for some batches.
type moreStore struct {
	*faultStore
	more int
}

func (s *moreStore) Purge(ctx context.Context, req driver.PurgeRequest) (driver.PurgeResult, error) {
	res, err := s.faultStore.Purge(ctx, req)
	res.More = s.more > 0
	s.more--
	return res, err
}
