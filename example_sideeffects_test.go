package everonce_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

// Effects counts what took effect: an effect is one that was executed now, and not one that was
// answered again.
type Effects struct{ charges, mails, webhooks, events atomic.Int64 }

func (e *Effects) Start(ctx context.Context, _ everonce.Op) context.Context { return ctx }

func (e *Effects) End(_ context.Context, ev everonce.Event) {
	if ev.Outcome != everonce.Executed || ev.Provisional {
		return
	}
	switch {
	case ev.Kind == "do" && ev.Scope == "orders":
		e.charges.Add(1)
	case ev.Kind == "do" && ev.Scope == "analytics":
		e.events.Add(1)
	case ev.Step == "mail":
		e.mails.Add(1)
	case ev.Step == "webhook":
		e.webhooks.Add(1)
	}
}

// The side effects that nobody thinks of are effects too: the e-mail, the metric, the webhook, the
// analytics event. Each is a step of its own, or an operation with a key of its own, and a counter
// counts what was executed only.
func Example_sideEffects() {
	ctx := context.Background()
	counters := &Effects{}
	r, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, &everonce.Options{
		EffectsInSteps: true, Observer: counters,
	})
	if err != nil {
		panic(err)
	}

	var mails, webhooks, analytics []string
	partnerUp := false
	order := func(ctx context.Context, a *everonce.Attempt) (string, error) {
		id := a.Key().ID
		// A second e-mail is worse than none: if nobody knows whether it went out, somebody looks.
		if _, err := everonce.Step(ctx, a, "mail", func(context.Context) (struct{}, error) {
			mails = append(mails, "your order "+id)
			return struct{}{}, nil
		}); err != nil {
			return "", err
		}
		// The partner deduplicates by the key that it is given: this may run again.
		if _, err := everonce.Step(ctx, a, "webhook", func(context.Context) (struct{}, error) {
			if !partnerUp {
				return struct{}{}, errors.New("the partner timed out")
			}
			webhooks = append(webhooks, a.DownstreamKey("webhook")[:8])
			return struct{}{}, nil
		}, everonce.WithPolicy(everonce.Reexecute)); err != nil {
			return "", err
		}
		// The analytics event belongs to others, who see it by a key of its own.
		event := everonce.Key{Scope: "analytics", ID: "ordered/" + id}
		_, err := everonce.Do(ctx, r, event, func(context.Context, *everonce.Attempt) (struct{}, error) {
			analytics = append(analytics, "ordered "+id)
			return struct{}{}, nil
		})
		return "order " + id + " placed", err
	}

	key := everonce.Key{Scope: "orders", ID: "7"}
	for range 4 { // the client retries, and retries
		res, err := everonce.Do(ctx, r, key, order)
		fmt.Println(res.Outcome, res.Value, err)
		partnerUp = true
	}
	fmt.Println(mails, webhooks, analytics)
	fmt.Println("orders", counters.charges.Load(), "mails", counters.mails.Load(),
		"webhooks", counters.webhooks.Load(), "events", counters.events.Load())
	// Output:
	// failed  step "webhook": the partner timed out
	// executed order 7 placed <nil>
	// replayed order 7 placed <nil>
	// replayed order 7 placed <nil>
	// [your order 7] [4da2f3b9] [ordered 7]
	// orders 1 mails 1 webhooks 1 events 1
}
