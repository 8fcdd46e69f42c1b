package everonce_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

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
				fmt.Println("attempt", s.Attempt, "has booked:", s.Name, s.State)
			}
			return "cancelled", nil
		}
		if _, err := everonce.Step(ctx, a, "flight", func(context.Context) (string, error) { return "LH 1", nil }); err != nil {
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
}
