package everonce_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

// What fails between two steps has left nothing half done, so the next delivery may go on, under Refuse too.
// Without the declaration nobody knows what the work did outside of its steps.
func ExampleEffectsInSteps() {
	ctx := context.Background()
	r, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}

	templates := errors.New("no such template")
	welcome := func(ctx context.Context, a *everonce.Attempt) (string, error) {
		account, err := everonce.Step(ctx, a, "account", func(context.Context) (string, error) {
			fmt.Println("opening an account")
			return "account-1", nil
		})
		if err != nil {
			return "", err
		}
		if a.Number() == 1 {
			return "", templates // of the mail that would come next
		}
		return account + " welcomed", nil
	}
	deliver := func(id string, opts ...everonce.CallOption) {
		for range 2 {
			res, err := everonce.Do(ctx, r, everonce.Key{Scope: "customers", ID: id}, welcome, opts...)
			fmt.Println(res.Outcome, res.Value, errors.Is(err, templates))
		}
	}
	deliver("ada", everonce.EffectsInSteps())
	deliver("bob")
	// Output:
	// opening an account
	// failed  true
	// executed account-1 welcomed false
	// opening an account
	// unknown  true
	// unknown  false
}
