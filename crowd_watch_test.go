package everonce_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
)

// blocked is a store whose watches take their time to end.
type blocked struct {
	*wordStore
	stop func()
}

func (s *blocked) Watch(ctx context.Context, req everonce.WatchRequest) (everonce.WatchResult, error) {
	res, err := s.wordStore.Watch(ctx, req)
	its := res.Stop
	res.Stop = func() { s.stop(); its() }
	return res, err
}

// The end of a watch, which a store is not to block in, costs nobody a lease if one does: neither who was granted the record after it had waited,
// nor who works beside it. And a panic there is not that of the call.
func TestAWatchThatDoesNotEndCostsNoLease(t *testing.T) {
	for name, stop := range map[string]func(){
		"it blocks": func() { time.Sleep(time.Hour) },
		"it panics": func() { panic("the store") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &blocked{newWordStore(), stop}
				o := &everonce.Options{Lease: 3 * time.Second, Wait: time.Hour}
				here, there := newReceiver(t, s, everonce.Reexecute, o), newReceiver(t, s, everonce.Reexecute, o)
				release, wg := runningInVain(t, there)
				long := func(_ context.Context, a *everonce.Attempt) (string, error) {
					time.Sleep(20 * time.Second)
					checkEqual(t, "Lost", a.Lost(), false)
					return "v", nil
				}
				wg.Go(func() { do(t, here, keyOf("beside"), long, everonce.Executed, nil) })
				wg.Go(func() { do(t, here, keyOf("x"), long, everonce.Executed, nil) })
				time.Sleep(atNoPoll)
				close(release)
				synctest.Wait()
				start := time.Now()
				do(t, there, keyOf("x"), never(t), everonce.Replayed, nil)
				checkEqual(t, "it waited for", time.Since(start), 20*time.Second)
				wg.Wait()
				time.Sleep(time.Hour)
				synctest.Wait()
			})
		})
	}
}

// Nor does it keep a transaction open.
func TestAWatchThatDoesNotEndKeepsNoTransactionOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMapStore()
		s := &watchedMap{m}
		here, there := newTxReceiver(t, s, nil), newReceiver(t, m, everonce.Refuse, nil)
		release, wg := runningInVain(t, there)
		start := time.Now()
		wg.Go(func() {
			res, err := everonce.Transact(t.Context(), here, keyOf("x"), func(context.Context, *mapTx) (string, error) {
				if d := time.Since(start) - atNoPoll; d > 1500*time.Millisecond {
					t.Errorf("it began %v after the end", d)
				}
				return "v", nil
			}, everonce.WithWait(time.Hour))
			checkOutcome(t, res, err, everonce.Executed, nil)
		})
		time.Sleep(atNoPoll)
		close(release)
		wg.Wait()
		time.Sleep(time.Hour)
		synctest.Wait()
	})
}

// watchedMap is a mapStore whose watches never tell, nor end.
type watchedMap struct{ *mapStore }

func (s *watchedMap) Watch(context.Context, everonce.WatchRequest) (everonce.WatchResult, error) {
	return everonce.WatchResult{Stop: func() { time.Sleep(time.Hour) }}, nil
}
