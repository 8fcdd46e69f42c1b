package everonce_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

// Invoice is what an operation answers: too large to be kept for every duplicate.
type Invoice struct {
	Number string
	PDF    []byte
}

// A result that is too large is not kept. The duplicate is told that it was done, and the little that it
// takes to find the rest.
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
