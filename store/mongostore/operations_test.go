package mongostore_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/mongostore"
)

// operations names the commands that were sent. A monitor does not see the driver's own, which keep its connections.
type operations struct {
	mu  sync.Mutex
	all []string
}

func (o *operations) monitor() *event.CommandMonitor {
	return &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.all = append(o.all, e.CommandName)
	}}
}

// of returns what fn has sent.
func (o *operations) of(t *testing.T, fn func() error) string {
	t.Helper()
	o.mu.Lock()
	o.all = nil
	o.mu.Unlock()
	noErr(t, fn())
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(slices.Clone(o.all), " ")
}

// counted is a store whose operations are counted.
func counted(t *testing.T) (*mongostore.Store, *operations) {
	t.Helper()
	ops := &operations{}
	client := connect(t, serverURL(t), ops.monitor())
	s, err := mongostore.New(t.Context(), client.Database(dbName), &mongostore.Options{Collection: newCollection(t)})
	noErr(t, err)
	return s, ops
}

// A guarded Do with a new key is two operations, and its replay two.
func TestRoundTripsOfDo(t *testing.T) {
	t.Parallel()
	s, ops := counted(t)
	r, err := everonce.NewReceiver(s, everonce.Refuse, nil)
	noErr(t, err)
	do := func(want everonce.Outcome) func() error {
		return func() error {
			res, err := everonce.Do(t.Context(), r, everonce.Key{Scope: "orders", ID: "7"}, func(context.Context, *everonce.Attempt) (string, error) { return "done", nil })
			if res.Outcome != want {
				t.Errorf("%v, want %v", res.Outcome, want)
			}
			return err
		}
	}
	bind(t, r)
	for _, c := range []struct {
		what, want string
		do         func() error
	}{
		{"Do, new key", "findAndModify update", do(everonce.Executed)},
		{"Do, replay", "findAndModify aggregate", do(everonce.Replayed)},
	} {
		got := ops.of(t, c.do)
		t.Logf("%s: %s", c.what, got)
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
}

// bind makes a first call: a receiver reads with it what the store is bound to.
func bind(t *testing.T, r *everonce.Receiver) {
	t.Helper()
	_, err := everonce.Do(t.Context(), r, everonce.Key{Scope: "orders", ID: "first"}, func(context.Context, *everonce.Attempt) (string, error) { return "", nil })
	noErr(t, err)
}

// The commands that each call of the store sends.
func TestRoundTripsOfTheStore(t *testing.T) {
	t.Parallel()
	s, ops := counted(t)
	ctx := t.Context()
	id := everonce.Key{Scope: "orders", ID: "7"}.RecordID()
	life := everonce.ForWeb()
	claim := func() driver.ClaimRequest {
		return driver.ClaimRequest{ID: id, Scope: "orders", Name: "7", Nonce: driver.NewNonce(), Lease: time.Minute, Lifetime: life}
	}
	var held driver.Record
	claimed := func() error {
		res, err := s.Claim(ctx, claim())
		if res.Decision == driver.DecideClaimed {
			held = res.Record
		}
		return err
	}
	for _, c := range []struct {
		what, want string
		do         func() error
	}{
		{"claim of a new key", "findAndModify", claimed},
		{"claim of a running one", "findAndModify aggregate", claimed},
		{"renew", "update", func() error {
			_, err := s.Renew(ctx, driver.RenewRequest{ID: id, Token: held.Token, Nonce: held.Nonce, Lease: time.Minute, Lifetime: life})
			return err
		}},
		{"save step", "aggregate update", func() error {
			_, err := s.SaveStep(ctx, driver.SaveStepRequest{ID: id, Token: held.Token, Nonce: held.Nonce, Step: driver.StepRecord{Name: "mail", State: driver.StepOpen, Attempt: 1}, Lease: time.Minute, Lifetime: life})
			return err
		}},
		{"release", "update", func() error {
			_, err := s.Release(ctx, driver.ReleaseRequest{ID: id, Token: held.Token, Nonce: held.Nonce, State: driver.StateReleased, Lifetime: life})
			return err
		}},
		{"claim after a release", "findAndModify aggregate update", claimed},
		{"complete", "update", func() error {
			_, err := s.Complete(ctx, driver.CompleteRequest{ID: id, Token: held.Token, Nonce: held.Nonce, Result: driver.SavedResult{Kind: driver.ResultValue, Codec: "raw"}, Lifetime: life})
			return err
		}},
		{"replay", "findAndModify aggregate", claimed},
		{"get", "aggregate", func() error { _, err := s.Get(ctx, driver.GetRequest{ID: id}); return err }},
		{"purge, nothing due", "aggregate find find", func() error { _, err := s.Purge(ctx, driver.PurgeRequest{Limit: 10}); return err }},
	} {
		got := ops.of(t, c.do)
		t.Logf("%s: %s", c.what, got)
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
}
