package everonce_test

import (
	"context"
	"fmt"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

// effects counts effects, and nothing else.
type effects struct{ n int }

func (*effects) Start(ctx context.Context, _ everonce.Op) context.Context { return ctx }

func (e *effects) End(_ context.Context, ev everonce.Event) {
	if ev.Outcome == everonce.Executed && !ev.Provisional {
		e.n++
	}
}

// An attachment is kept beside the operation that made it: it is no effect of its own.
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
