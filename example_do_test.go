package everonce_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

// A charge that is delivered three times is made once, and answered three times.
func ExampleDo() {
	ctx := context.Background()
	store := memstore.New(nil) // in production: pgxstore, sqlitestore, …
	r, err := everonce.NewReceiver(store, everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}

	charge := func(ctx context.Context, a *everonce.Attempt) (string, error) {
		fmt.Println("charging, with the key", a.DownstreamKey("charge")[:8])
		return "receipt-1", nil
	}
	key := everonce.Key{Scope: everonce.ScopeOf("tenant-1", "POST /charges"), ID: "order-7"}
	for range 3 {
		res, err := everonce.Do(ctx, r, key, charge, everonce.FingerprintOf(1250, "EUR"))
		fmt.Println(res.Outcome, res.Value, err)
	}
	// Output:
	// charging, with the key dcfb1551
	// executed receipt-1 <nil>
	// replayed receipt-1 <nil>
	// replayed receipt-1 <nil>
}

// A process with the wrong secret would treat every duplicate as new. Ready fails at its start instead.
func ExampleReceiver_Ready() {
	ctx := context.Background()
	store := memstore.New(nil)
	for _, secret := range []string{"the store's own secret", "a typo in the configuration"} {
		r, err := everonce.NewReceiver(store, everonce.Refuse, &everonce.Options{IdentitySecret: []byte(secret)})
		if err != nil {
			panic(err)
		}
		err = r.Ready(ctx)
		fmt.Println(err)
	}
	// Output:
	// <nil>
	// everonce: store failed: memstore: everonce: identity secret does not match the store's
}

// An adapter asks for the question that Reconcile needs before the first request comes.
func ExampleReceiver_Policy() {
	r, err := everonce.NewReceiver(memstore.New(nil), everonce.Reconcile, nil)
	if err != nil {
		panic(err)
	}
	fmt.Println(r.Policy(), r.Policy() == everonce.Reconcile)
	// Output: reconcile true
}

// A service publishes how long its answers are kept.
func ExampleReceiver_Options() {
	r, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}
	o := r.Options()
	fmt.Println(o.Lifetime.Retention, o.Lease, o.MaxResult)
	// Output: 24h0m0s 30s 1048576
}

// Support looks for an order in the bank's list of charges, by the key under which it was made.
func ExampleReceiver_DownstreamKey() {
	ctx := context.Background()
	r, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}

	bank := map[string]string{}
	key := everonce.Key{Scope: "charges", ID: "order-7"}
	_, err = everonce.Do(ctx, r, key, func(_ context.Context, a *everonce.Attempt) (string, error) {
		bank[a.DownstreamKey("charge")] = "booked on Monday"
		return "", errors.New("timeout")
	})
	fmt.Println(errors.Is(err, everonce.ErrOutcomeUnknown))
	fmt.Println(bank[r.DownstreamKey(key, "charge")])
	// Output:
	// true
	// booked on Monday
}

// The lease is no limit of the work: it is renewed for as long as the work runs. It is how long the key
// stays claimed after its process has died, so a short one lets another attempt in sooner.
func ExampleWithLease() {
	ctx := context.Background()
	now := time.Date(2026, time.March, 1, 9, 0, 0, 0, time.UTC)
	store := memstore.New(&memstore.Options{Now: func() time.Time { return now }})
	r, err := everonce.NewReceiver(store, everonce.Reexecute, nil)
	if err != nil {
		panic(err)
	}
	key := everonce.Key{Scope: "locks", ID: "door-1"}
	for _, lease := range []time.Duration{0, 3 * time.Second} {
		var opts []everonce.CallOption
		if lease > 0 {
			opts = append(opts, everonce.WithLease(lease))
		}
		_, err := everonce.Do(ctx, r, key, func(ctx context.Context, _ *everonce.Attempt) (string, error) {
			page, err := store.List(ctx, everonce.ListRequest{Scope: key.Scope})
			if err != nil {
				return "", err
			}
			fmt.Println("claimed for", page.Records[0].LeaseUntil.Sub(page.Now))
			return "", everonce.NotDone(errors.New("the door is open"))
		}, opts...)
		fmt.Println(err)
	}
	// Output:
	// claimed for 30s
	// the door is open
	// claimed for 3s
	// the door is open
}

// A report is large and soon out of date: its bytes are kept for an hour, and for a week it is known that
// it was sent. Afterwards the key is new.
func ExampleWithLifetime() {
	ctx := context.Background()
	now := time.Date(2026, time.March, 1, 9, 0, 0, 0, time.UTC)
	store := memstore.New(&memstore.Options{Now: func() time.Time { return now }}) // a clock that the example moves
	r, err := everonce.NewReceiver(store, everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}

	send := func() {
		res, err := everonce.Do(ctx, r, everonce.Key{Scope: "reports", ID: "2026-02"},
			func(context.Context, *everonce.Attempt) (string, error) { return "all is well", nil },
			everonce.WithLifetime(everonce.Lifetime{Retention: time.Hour, Remember: 7 * 24 * time.Hour}))
		fmt.Println(now.Format("Jan 2 15:04"), res.Outcome, res.Value, errors.Is(err, everonce.ErrExpired))
	}
	send()
	now = now.Add(59 * time.Minute)
	send()
	now = now.Add(time.Minute)
	send()
	now = now.Add(7 * 24 * time.Hour)
	send()
	// Output:
	// Mar 1 09:00 executed all is well false
	// Mar 1 09:59 replayed all is well false
	// Mar 1 10:00 expired  true
	// Mar 8 10:00 executed all is well false
}

// The presets are for the time in which a duplicate may come: from clients, from a queue, from an audit.
func ExampleForFinance() {
	for _, l := range []everonce.Lifetime{everonce.ForWeb(), everonce.ForQueue(), everonce.ForFinance()} {
		const day = 24 * time.Hour
		fmt.Printf("answered again for %d days, protected for %d\n", l.Retention/day, l.Total()/day)
	}
	r, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, &everonce.Options{Lifetime: everonce.ForFinance()})
	fmt.Println(r != nil, err)
	// Output:
	// answered again for 1 days, protected for 2
	// answered again for 7 days, protected for 14
	// answered again for 90 days, protected for 365
	// true <nil>
}

// A duplicate that comes while the first delivery is at work waits for its answer, instead of being told
// to come back.
func ExampleWithWait() {
	ctx := context.Background()
	r, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}
	key := everonce.Key{Scope: "charges", ID: "order-7"}

	started, duplicate := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		res, err := everonce.Do(ctx, r, key, func(context.Context, *everonce.Attempt) (string, error) {
			close(started)
			<-duplicate
			return "receipt-1", nil
		})
		if err != nil || res.Outcome != everonce.Executed {
			panic(err)
		}
	})

	<-started
	res, err := everonce.Do(ctx, r, key, nothing)
	fmt.Println(res.Outcome, err != nil)
	close(duplicate)
	res, err = everonce.Do(ctx, r, key, nothing, everonce.WithWait(time.Minute))
	fmt.Println(res.Outcome, res.Value, err)
	wg.Wait()
	// Output:
	// in_progress true
	// replayed receipt-1 <nil>
}

func nothing(context.Context, *everonce.Attempt) (string, error) { panic("the first one has it") }

// Invoice is what an operation answers: too large to be kept for every duplicate.
type Invoice struct {
	Number string
	PDF    []byte
}

// A result that is too large is not kept. The duplicate learns that it was done, and gets the summary, which is
// enough to find the rest.
func ExampleWithSummary() {
	ctx := context.Background()
	r, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, &everonce.Options{MaxResult: 1 << 10})
	if err != nil {
		panic(err)
	}

	bill := func(context.Context, *everonce.Attempt) (Invoice, error) {
		return Invoice{Number: "2026-0042", PDF: make([]byte, 1<<20)}, nil
	}
	for range 2 {
		res, err := everonce.Do(ctx, r, everonce.Key{Scope: "invoices", ID: "order-7"}, bill,
			everonce.WithSummary(func(i Invoice) []byte { return []byte(i.Number) }))
		var e *everonce.Error
		switch {
		case err == nil:
			fmt.Println(res.Outcome, res.Value.Number, len(res.Value.PDF))
		case errors.Is(err, everonce.ErrResultElided) && errors.As(err, &e):
			fmt.Println(res.Outcome, string(e.Summary))
		default:
			fmt.Println(err)
		}
	}
	// Output:
	// executed 2026-0042 1048576
	// elided 2026-0042
}

// All calls of an operation have the same options but for the fingerprint: they are checked once, at start-up.
func ExampleReceiver_Prepare() {
	ctx := context.Background()
	r, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}
	refunds, err := r.Prepare(everonce.WithLease(time.Minute), everonce.WithLifetime(everonce.Lifetime{Retention: 30 * 24 * time.Hour}))
	if err != nil {
		panic(err)
	}
	refund := func(id string, amount int) (everonce.Outcome, error) {
		res, err := everonce.Do(ctx, r, everonce.Key{Scope: "refunds", ID: id},
			func(context.Context, *everonce.Attempt) (int, error) { return amount, nil },
			refunds, everonce.FingerprintOf(amount))
		return res.Outcome, err
	}
	fmt.Println(refund("r-7", 4200))
	fmt.Println(refund("r-7", 4200))
	_, err = r.Prepare(everonce.WithLease(-time.Minute))
	fmt.Println(err != nil)
	// Output:
	// executed <nil>
	// replayed <nil>
	// true
}

// effects counts effects, and nothing else.
type effects struct{ n int }

func (*effects) Start(ctx context.Context, _ everonce.Op) context.Context { return ctx }

func (e *effects) End(_ context.Context, ev everonce.Observation) {
	if ev.Outcome == everonce.Executed && !ev.Provisional {
		e.n++
	}
}

// An attachment is kept beside the operation that made it: it is not a separate effect.
func ExampleUnobserved() {
	ctx := context.Background()
	counted := &effects{}
	r, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, &everonce.Options{Observer: counted})
	if err != nil {
		panic(err)
	}
	report := everonce.Key{Scope: "reports", ID: "may"}
	attachment := everonce.Key{Scope: "reports", ID: "may/attachment"}
	res, err := everonce.Do(ctx, r, report, func(ctx context.Context, _ *everonce.Attempt) (string, error) {
		_, err := everonce.Do(ctx, r, attachment, func(context.Context, *everonce.Attempt) (string, error) {
			return "a large text", nil
		}, everonce.Unobserved())
		return "see the attachment", err
	})
	fmt.Println(res.Value, err)
	fmt.Println("effects:", counted.n)
	// Output:
	// see the attachment <nil>
	// effects: 1
}

// A client that polls gets what is known, and nothing is claimed for it.
func ExampleLookup() {
	ctx := context.Background()
	r, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}
	key := everonce.Key{Scope: "charges", ID: "order-7"}
	poll := func() {
		res, err := everonce.Lookup[string](ctx, r, key)
		var e *everonce.Error
		switch {
		case err == nil:
			fmt.Println("done:", res.Value)
		case errors.Is(err, everonce.ErrNotFound), errors.Is(err, everonce.ErrReleased):
			fmt.Println("send it, or send it again")
		case errors.Is(err, everonce.ErrInProgress) && errors.As(err, &e):
			fmt.Println("in progress, ask again in", e.RetryAfter)
		default:
			fmt.Println(err)
		}
	}

	poll()
	_, err = everonce.Do(ctx, r, key, func(context.Context, *everonce.Attempt) (string, error) {
		poll()
		return "receipt-1", nil
	})
	if err != nil {
		panic(err)
	}
	poll()
	// Output:
	// send it, or send it again
	// in progress, ask again in 1s
	// done: receipt-1
}
