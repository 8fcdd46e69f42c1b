package consume_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/oncetest"
	"github.com/everonce/everonce/store/memstore"
)

// Invalid specs are rejected when the consumer is made. A message may not be forgotten before the channel has
// delivered it for the last time: that error names both times.
func TestRefusedSpecs(t *testing.T) {
	recv, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	const week = 7 * 24 * time.Hour
	for name, change := range map[string]func(*consume.Spec[order]){
		"no name":            func(s *consume.Spec[order]) { s.Consumer = "" },
		"no key":             func(s *consume.Spec[order]) { s.Key = nil },
		"no pointer":         func(s *consume.Spec[order]) { s.Key = consume.JSONPointer("id") },
		"no pointer, inside": func(s *consume.Spec[order]) { s.Key = consume.FirstOf(consume.ProducerID(), consume.JSONPointer("id")) },
		"no parts":           func(s *consume.Spec[order]) { s.Key = consume.Composite("Order") }, // one key for all messages
		"no parts, inside": func(s *consume.Spec[order]) {
			s.Key = consume.FirstOf(consume.ProducerID(), consume.Composite("Order"))
		},
		"no keys":             func(s *consume.Spec[order]) { s.Key = consume.FirstOf() },
		"no header":           func(s *consume.Spec[order]) { s.Key = consume.Header("") },
		"no handler":          func(s *consume.Spec[order]) { s.Handle = nil },
		"negative body":       func(s *consume.Spec[order]) { s.MaxBody = -1 },
		"negative window":     func(s *consume.Spec[order]) { s.Window = -1 },
		"negative delay":      func(s *consume.Spec[order]) { s.Retry.Min = -1 },
		"a name of two lines": func(s *consume.Spec[order]) { s.Consumer = "a\nb" },
		"a name too long":     func(s *consume.Spec[order]) { s.Consumer = strings.Repeat("a", driver.MaxScopeLen+1) },
		"no such policy":      func(s *consume.Spec[order]) { s.Policy = everonce.Reconcile + 1 },
		"nothing to ask":      func(s *consume.Spec[order]) { s.Policy = everonce.Reconcile },
		"no retention":        func(s *consume.Spec[order]) { s.Lifetime.Remember = 30 * 24 * time.Hour },
		"negative remember": func(s *consume.Spec[order]) {
			s.Lifetime = everonce.Lifetime{Retention: 30 * 24 * time.Hour, Remember: -1}
		},
		"a question that is never asked": func(s *consume.Spec[order]) { s.Reconcile = neverAsked },
		"one that a policy keeps from being asked": func(s *consume.Spec[order]) {
			s.Policy, s.Reconcile = everonce.Reexecute, neverAsked
		},
		"a lifetime without end": func(s *consume.Spec[order]) {
			s.Lifetime = everonce.Lifetime{Retention: 200 * 365 * 24 * time.Hour}
		},
		"a lifetime below a week": func(s *consume.Spec[order]) { s.Lifetime = everonce.Lifetime{Retention: week - 1} },
		"window of a month":       func(s *consume.Spec[order]) { s.Window = 30 * 24 * time.Hour },
	} {
		spec := consume.Spec[order]{Consumer: "billing", Key: consume.ProducerID(), Handle: done}
		change(&spec)
		_, err := consume.New(recv, spec)
		if !errors.Is(err, everonce.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
		if name == "window of a month" && (err == nil || !strings.Contains(err.Error(), "720h") || !strings.Contains(err.Error(), "336h")) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := consume.New(recv, consume.Spec[order]{Consumer: "billing", Key: consume.ProducerID(), Handle: done, Lifetime: everonce.Lifetime{Retention: week}}); err != nil {
		t.Errorf("a lifetime of a week: %v", err)
	}
	if _, err := consume.New(nil, consume.Spec[order]{Consumer: "billing", Key: consume.ProducerID(), Handle: done}); !errors.Is(err, everonce.ErrInvalidArgument) {
		t.Errorf("no receiver: %v", err)
	}
	asking, err := everonce.NewReceiver(memstore.New(nil), everonce.Reconcile, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := consume.New(asking, consume.Spec[order]{Consumer: "billing", Key: consume.ProducerID(), Handle: done}); !errors.Is(err, everonce.ErrInvalidArgument) {
		t.Errorf("a receiver that asks, and nothing to ask: %v", err)
	}
	c := serving(t, memstore.New(nil), done)
	for _, w := range []consume.Workers{
		{Concurrency: -1}, {Backoff: consume.Backoff{Min: -1}}, {Backoff: consume.Backoff{Max: -1}}, {HandleTimeout: -1}, {DrainTimeout: -1}, {SettleTimeout: -1},
	} {
		if err := c.CheckWorkers(&w); !errors.Is(err, everonce.ErrInvalidArgument) {
			t.Errorf("%+v: %v", w, err)
		}
	}
}

// isCharged asks the gateway itself.
func isCharged(gateway *oncetest.Gateway) func(context.Context, everonce.Abandoned) (everonce.Verdict[struct{}], error) {
	return func(_ context.Context, a everonce.Abandoned) (everonce.Verdict[struct{}], error) {
		if _, ok := gateway.Find(a.Downstream("charge")); ok {
			return everonce.Happened(struct{}{}), nil
		}
		return everonce.NotHappened[struct{}](), nil
	}
}

func neverAsked(context.Context, everonce.Abandoned) (everonce.Verdict[struct{}], error) {
	return everonce.StillUnknown[struct{}](), nil
}

// A handler's context ends after HandleTimeout, and its result is still used.
func TestAHandlerIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serving(t, memstore.New(nil), func(ctx context.Context, _ *consume.Message, _ order) error {
			<-ctx.Done()
			return everonce.NotDone(context.Cause(ctx))
		})
		in := make(chan consume.Delivery, 1)
		d := message("m-1")
		in <- d
		close(in)
		if err := c.Serve(t.Context(), in, &consume.Workers{HandleTimeout: time.Minute, Log: quiet}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(d.ended, []string{"retry true"}) {
			t.Errorf("it ended as %v", d.ended)
		}
	})
}

// The error of a message that failed by "context deadline exceeded" names the deadline: the consumer's, which can be
// changed.
func TestTheErrorNamesTheDeadline(t *testing.T) {
	for name, c := range map[string]struct {
		err  func(ctx context.Context) error
		want string
	}{
		"its context's error": {func(ctx context.Context) error { return everonce.NotDone(fmt.Errorf("the bank: %w", ctx.Err())) }, "the bank: context deadline exceeded: consume: the handler ran longer than HandleTimeout"},
		"its context's cause": {func(ctx context.Context) error { return everonce.NotDone(context.Cause(ctx)) }, "consume: the handler ran longer than HandleTimeout"},
		"another error":       {func(context.Context) error { return everonce.NotDone(errDead) }, errDead.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var decisions []consume.Decision
				r := rigged(t, func(ctx context.Context, _ *consume.Message, _ order) error {
					<-ctx.Done()
					return c.err(ctx)
				}, func(s *consume.Spec[order]) {
					s.Observe = func(_ context.Context, _ *consume.Message, v consume.Decision) { decisions = append(decisions, v) }
				})
				in := make(chan consume.Delivery, 1)
				d := message("m-1")
				d.m.Retries = 10
				in <- d
				close(in)
				if err := r.c.Serve(t.Context(), in, &consume.Workers{HandleTimeout: time.Minute, Log: quiet}); err != nil {
					t.Fatal(err)
				}
				if len(decisions) != 1 || decisions[0].Death.Reason != consume.Exhausted || decisions[0].Death.Detail != c.want {
					t.Errorf("%+v", decisions)
				}
			})
		})
	}
}

// A handler that ends its goroutine ends its message, and the next one has a worker.
func TestAHandlerThatExits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serving(t, memstore.New(nil), func(_ context.Context, m *consume.Message, _ order) error {
			if m.ID == "m-1" {
				runtime.Goexit()
			}
			return nil
		})
		in := make(chan consume.Delivery, 2)
		first, second := message("m-1"), message("m-2")
		in <- first
		in <- second
		close(in)
		if err := c.Serve(t.Context(), in, &consume.Workers{Concurrency: 1, Log: quiet}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(first.ended, []string{"set_aside unknown"}) || !slices.Equal(second.ended, []string{"ack"}) {
			t.Errorf("ended as %v and %v", first.ended, second.ended)
		}
	})
}

// A handler that panics or ends its goroutine at each delivery has as many retries as one that returns errors, each
// after its delay; then the message is a dead letter.
func TestAHandlerThatDoesNotReturnIsRetriedUpToTheLimit(t *testing.T) {
	for name, givesUp := range map[string]func(){"by a panic": func() { panic("no") }, "by Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			recv, err := everonce.NewReceiver(memstore.New(nil), everonce.Reexecute, nil)
			if err != nil {
				t.Fatal(err)
			}
			told := 0
			c, err := consume.New(recv, consume.Spec[order]{
				Consumer: "billing", Key: consume.ProducerID(), Retry: consume.RetryPolicy{Limit: 2, Min: time.Hour, Max: time.Hour},
				Handle:  func(context.Context, *consume.Message, order) error { givesUp(); return nil },
				Observe: func(context.Context, *consume.Message, consume.Decision) { told++ },
			})
			if err != nil {
				t.Fatal(err)
			}
			for retries, want := range []string{"retry true", "retry true", "set_aside exhausted"} {
				d := &bound{delivery: message("m-1"), tries: 1}
				d.m.Retries = retries
				in := make(chan consume.Delivery, 1)
				in <- d
				close(in)
				if err := c.Serve(t.Context(), in, &consume.Workers{Concurrency: 1, Log: quiet}); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(d.how(), []string{want}) || retries < 2 && d.asked < 30*time.Minute {
					t.Errorf("after %d retries it ended as %v, to come again after %v; want %s", retries, d.how(), d.asked, want)
				}
			}
			if told != 3 {
				t.Errorf("Observe was called %d times, want 3", told)
			}
		})
	}
}
