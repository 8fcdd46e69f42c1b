package everonce_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

// One line per operation, with the hash of its key: what a person may have to look at is a warning.
func ExampleLogObserver() {
	ctx := context.Background()
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "took" {
				return slog.Attr{} // so that the example prints the same every time
			}
			return a
		},
	}))
	r, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, &everonce.Options{Observer: everonce.LogObserver(log)})
	if err != nil {
		panic(err)
	}
	key := everonce.Key{Scope: "charges", ID: "order-7"}
	charge := func(context.Context, *everonce.Attempt) (string, error) { return "receipt-1", nil }
	for _, amount := range []int{1250, 1250, 9999} {
		_, _ = everonce.Do(ctx, r, key, charge, everonce.FingerprintOf(amount))
	}
	// Output:
	// level=DEBUG msg="everonce do" key=4d3a1f55da85094c scope=charges outcome=executed attempt=1
	// level=DEBUG msg="everonce do" key=4d3a1f55da85094c scope=charges outcome=replayed
	// level=WARN msg="everonce do" key=4d3a1f55da85094c scope=charges outcome=mismatch error="everonce: key reused with a different request (key 4d3a1f55da85094c)"
}

// counts counts effects: what was executed, and is not provisional.
type counts map[everonce.Scope]int

func (counts) Start(ctx context.Context, _ everonce.Op) context.Context { return ctx }

func (c counts) End(_ context.Context, ev everonce.Observation) {
	if ev.Outcome == everonce.Executed && !ev.Provisional {
		c[ev.Scope]++ // under a lock, or by a metric that may be used concurrently
	}
}

// A log and a counter at once.
func ExampleJoinObservers() {
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "took" {
				return slog.Attr{}
			}
			return a
		},
	}))
	effects := counts{}
	r, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, &everonce.Options{
		Observer: everonce.JoinObservers(everonce.LogObserver(log), effects),
	})
	if err != nil {
		panic(err)
	}
	key := everonce.Key{Scope: "charges", ID: "order-7"}
	charge := func(context.Context, *everonce.Attempt) (string, error) { return "receipt-1", nil }
	for _, amount := range []int{1250, 1250, 9999} {
		_, _ = everonce.Do(context.Background(), r, key, charge, everonce.FingerprintOf(amount))
	}
	fmt.Println("effects:", effects["charges"])
	// Output:
	// level=WARN msg="everonce do" key=4d3a1f55da85094c scope=charges outcome=mismatch error="everonce: key reused with a different request (key 4d3a1f55da85094c)"
	// effects: 1
}

// Effects counts what took effect: an effect is one that was executed now, and not one that was
// answered again.
type Effects struct{ charges, mails, webhooks, events atomic.Int64 }

func (e *Effects) Start(ctx context.Context, _ everonce.Op) context.Context { return ctx }

func (e *Effects) End(_ context.Context, ev everonce.Observation) {
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

// Side effects that are easily forgotten are effects too: the e-mail, the metric, the webhook, the analytics event.
// Each is a separate step, or an operation with its own key, and a counter counts only executed operations.
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
		// A second e-mail is worse than none: if it is unknown whether it went out, an operator settles it.
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
		// The analytics event belongs to another team, which sees it by its own key.
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

// A client of another system, deep below the work, finds the key to call it with in its context.
func ExampleAttemptFrom() {
	ctx := context.Background()
	r, err := everonce.NewReceiver(memstore.New(nil), everonce.Reexecute, nil)
	if err != nil {
		panic(err)
	}

	post := func(ctx context.Context, path string) {
		if a, ok := everonce.AttemptFrom(ctx); ok {
			fmt.Println("POST", path, "Idempotency-Key:", a.DownstreamKey(path))
			return
		}
		fmt.Println("POST", path)
	}
	post(ctx, "/ping")
	_, err = everonce.Do(ctx, r, everonce.Key{Scope: "charges", ID: "order-7"}, func(ctx context.Context, _ *everonce.Attempt) (string, error) {
		post(ctx, "/charge")
		post(ctx, "/mail")
		return "", nil
	})
	fmt.Println(err)
	// Output:
	// POST /ping
	// POST /charge Idempotency-Key: dc85a06e4aa9cc364639b3404a6b67bc
	// POST /mail Idempotency-Key: 62d946285e77ba3a52929b3d27efa920
	// <nil>
}

// Every attempt of an operation gives the other side the same key, so that it can tell the second call for
// a repetition of the first. Every effect has its own.
func ExampleAttempt_DownstreamKey() {
	ctx := context.Background()
	r, err := everonce.NewReceiver(memstore.New(nil), everonce.Reexecute, nil)
	if err != nil {
		panic(err)
	}
	order := func(_ context.Context, a *everonce.Attempt) (string, error) {
		fmt.Println("attempt", a.Number(), "charge", a.DownstreamKey("charge")[:8], "mail", a.DownstreamKey("mail")[:8])
		if a.Previous().State == 0 {
			return "", errors.New("timeout")
		}
		return "placed", nil
	}
	for range 2 {
		res, err := everonce.Do(ctx, r, everonce.Key{Scope: "orders", ID: "order-7"}, order)
		fmt.Println(res.Outcome, res.Value, err)
	}
	// Output:
	// attempt 1 charge c1ba211d mail e938118c
	// failed  timeout
	// attempt 2 charge c1ba211d mail e938118c
	// executed placed <nil>
}

// A later attempt sees what the earlier ones have done, and takes back what is no longer wanted.
func ExampleAttempt_Steps() {
	ctx := context.Background()
	r, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, &everonce.Options{EffectsInSteps: true})
	if err != nil {
		panic(err)
	}

	soldOut := false
	book := func(ctx context.Context, a *everonce.Attempt) (string, error) {
		if soldOut {
			for _, s := range a.Steps() {
				fmt.Println("attempt", s.Attempt, "left the", s.Name, s.State)
			}
			return "cancelled", nil
		}
		if _, err := everonce.Step(ctx, a, "flight", func(context.Context) (string, error) { return "seat 12A", nil }); err != nil {
			return "", err
		}
		return everonce.Step(ctx, a, "hotel", func(context.Context) (string, error) {
			return "", everonce.NotDone(errors.New("no room is free"))
		})
	}
	for range 2 {
		res, err := everonce.Do(ctx, r, everonce.Key{Scope: "trips", ID: "7"}, book)
		fmt.Println(res.Outcome, res.Value, err)
		soldOut = true
	}
	// Output:
	// failed  step "hotel": no room is free
	// attempt 1 left the flight done
	// attempt 1 left the hotel not_done
	// executed cancelled <nil>
}

// The caller has hung up, and the work must not stop halfway: what has begun is finished under a context
// that ends with the attempt only.
func ExampleAttempt_Detached() {
	ctx, hangUp := context.WithCancel(context.Background())
	r, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}

	var detached context.Context
	res, err := everonce.Do(ctx, r, everonce.Key{Scope: "transfers", ID: "7"}, func(ctx context.Context, a *everonce.Attempt) (string, error) {
		hangUp() // after the money was taken from the one account
		detached = a.Detached()
		fmt.Println("caller:", ctx.Err(), "detached:", detached.Err())
		return "given to the other", nil
	})
	fmt.Println(res.Outcome, res.Value, err)
	fmt.Println(context.Cause(detached))
	// Output:
	// caller: context canceled detached: <nil>
	// executed given to the other <nil>
	// everonce: attempt has ended
}
