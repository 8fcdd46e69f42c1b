package enginetest

import (
	"context"
	"errors"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

// A step that comes after the end gets ErrAttemptEnded, although its attempt had no steps.
func TestStepOfAnAttemptThatHadNoneAndHasEnded(t *testing.T) {
	r := newReceiver(t, memstore.New(nil), everonce.Refuse, nil)
	var a *everonce.Attempt
	do(t, r, keyOf("x"), func(_ context.Context, at *everonce.Attempt) (string, error) { a = at; return "", nil }, everonce.Executed, nil)
	if _, err := everonce.Step(t.Context(), a, "late", func(context.Context) (int, error) { t.Error("it ran"); return 0, nil }); !errors.Is(err, everonce.ErrAttemptEnded) {
		t.Errorf("got %v, want ErrAttemptEnded", err)
	}
}
