package everonce_test

import (
	"context"
	"errors"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

// What an operation says of itself is not taken for what is true of the operation around it.
func TestMarksOfANestedOperationAreItsOwn(t *testing.T) {
	for name, inner := range map[string]error{"marked": everonce.NotDone(errWork), "for the classifier": errWork} {
		t.Run(name, func(t *testing.T) {
			r := newReceiver(t, memstore.New(nil), everonce.Refuse, &everonce.Options{Classify: func(err error) error {
				if errors.Is(err, errWork) {
					return everonce.NotDone(err)
				}
				return err
			}})
			charged := 0
			outer := func(ctx context.Context, _ *everonce.Attempt) (string, error) {
				charged++
				res, err := everonce.Do(ctx, r, keyOf("inner"), returns("", inner))
				checkEqual(t, "the inner outcome", res.Outcome, everonce.Failed)
				checkErr(t, err, errWork)
				return "", err
			}
			do(t, r, keyOf("outer"), outer, everonce.Unknown, everonce.ErrOutcomeUnknown)
			do(t, r, keyOf("outer"), outer, everonce.Unknown, everonce.ErrOutcomeUnknown)
			checkEqual(t, "charges", charged, 1)
		})
	}
}
