package everonce_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

// A failure that is final is an answer too: every duplicate gets it, and nobody asks the bank again.
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
