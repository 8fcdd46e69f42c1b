package enginetest

import (
	"context"
	"errors"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

// The mark on an operation's error does not apply to the operation around it.
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

// A classifier is asked once for each error, which it may count, and what it says then is what is saved: a second
// answer might differ.
func TestClassifyIsAskedOnce(t *testing.T) {
	asked := 0
	refusesFirst := &everonce.Options{Classify: func(error) error {
		if asked++; asked == 1 {
			return everonce.Permanent("classified", nil, nil)
		}
		return everonce.NotDone(errClassified)
	}}
	fails := addsThen(func(*mapTx) error { return errClassified })
	for name, run := range map[string]func(s *mapStore) error{
		"Do": func(s *mapStore) error {
			_, err := everonce.Do(t.Context(), newReceiver(t, s, everonce.Refuse, refusesFirst), keyOf("x"), returns("", errClassified))
			return err
		},
		"Step": func(s *mapStore) (err error) {
			inAttempt(t, newReceiver(t, s, everonce.Refuse, refusesFirst), keyOf("x"), func(ctx context.Context, a *everonce.Attempt) {
				_, err = everonce.Step(ctx, a, "s", stepReturns("", errClassified))
			})
			return err
		},
		"StepTx": func(s *mapStore) (err error) {
			inAttempt(t, newReceiver(t, s, everonce.Refuse, refusesFirst), keyOf("x"), func(ctx context.Context, a *everonce.Attempt) {
				_, err = everonce.StepTx(ctx, a, newTxReceiver(t, s, nil), "s", fails)
			})
			return err
		},
		"Transact": func(s *mapStore) error {
			_, err := everonce.Transact(t.Context(), newTxReceiver(t, s, refusesFirst), keyOf("x"), fails)
			return err
		},
		"TransactBatch": func(s *mapStore) error {
			res, err := everonce.TransactBatch(t.Context(), newTxReceiver(t, s, refusesFirst), items("x"), everonce.EachItem(func(ctx context.Context, tx *mapTx, _ int) (int, error) { return fails(ctx, tx) }))
			if err != nil {
				return err
			}
			return res[0].Err
		},
		"DoTx": func(s *mapStore) error {
			tx := s.begin()
			_, err := everonce.DoTx(t.Context(), tx, newTxReceiver(t, s, refusesFirst), keyOf("x"), within(tx, fail(errClassified)))
			return errors.Join(err, tx.Commit())
		},
	} {
		t.Run(name, func(t *testing.T) {
			asked = 0
			err := run(newMapStore())
			checkEqual(t, "code", asPermanent(t, err).Code, "classified")
			checkEqual(t, "asked", asked, 1)
		})
	}
}
