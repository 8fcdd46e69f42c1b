package everonce_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

// An error that proves that nothing took hold frees the key: the next delivery tries again. Any other
// error says nothing, and under Refuse the operation then stays unknown.
func ExampleNotDone() {
	ctx := context.Background()
	r, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}

	errRefused := errors.New("connection refused")
	errTimeout := errors.New("no answer within 5 s")
	charge := func(fail error) func(context.Context, *everonce.Attempt) (string, error) {
		return func(_ context.Context, a *everonce.Attempt) (string, error) {
			switch {
			case errors.Is(fail, errRefused): // the request never left
				return "", everonce.NotDone(fail)
			case fail != nil: // the bank may have booked it
				return "", fail
			}
			return fmt.Sprintf("receipt of attempt %d", a.Number()), nil
		}
	}

	first := everonce.Key{Scope: "charges", ID: "order-7"}
	for _, fail := range []error{errRefused, nil, nil} {
		res, err := everonce.Do(ctx, r, first, charge(fail))
		fmt.Println(res.Outcome, res.Value, err)
	}
	second := everonce.Key{Scope: "charges", ID: "order-8"}
	for _, fail := range []error{errTimeout, nil} {
		res, err := everonce.Do(ctx, r, second, charge(fail))
		fmt.Println(res.Outcome, errors.Is(err, everonce.ErrOutcomeUnknown))
	}
	// Output:
	// failed  connection refused
	// executed receipt of attempt 2 <nil>
	// replayed receipt of attempt 2 <nil>
	// unknown true
	// unknown true
}

// A failure that is final is an answer too: every duplicate gets it, and the bank is not asked again.
func ExamplePermanent() {
	ctx := context.Background()
	r, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}

	charge := func(context.Context, *everonce.Attempt) (string, error) {
		fmt.Println("asking the bank")
		return "", everonce.Permanent("card_declined", errors.New("no funds"), []byte(`{"retry":"never"}`))
	}
	key := everonce.Key{Scope: "charges", ID: "order-7"}
	for range 2 {
		res, err := everonce.Do(ctx, r, key, charge)
		var failure *everonce.PermanentError
		if errors.As(err, &failure) {
			fmt.Println(res.Outcome, failure.Code, failure.Message, string(failure.Detail))
		}
	}
	// Output:
	// asking the bank
	// rejected card_declined no funds {"retry":"never"}
	// rejected card_declined no funds {"retry":"never"}
}
