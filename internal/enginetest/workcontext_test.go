package enginetest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

// The work's context ends as one of the standard library's would, whenever somebody first looks at it.
func TestWorkContextEnds(t *testing.T) {
	type valueKey struct{}
	errGone := errors.New("the caller is gone")
	type moment = func(work context.Context, endCaller context.CancelCauseFunc)
	nothing := func(context.Context, context.CancelCauseFunc) {}
	look := func(ctx context.Context, _ context.CancelCauseFunc) { _ = ctx.Done() }
	callerEnds := func(_ context.Context, end context.CancelCauseFunc) { end(errGone) }
	for _, c := range []struct {
		name          string
		during, after moment
		want          error
	}{
		{"never looked at", nothing, nothing, everonce.ErrAttemptEnded},
		{"looked at", look, nothing, everonce.ErrAttemptEnded},
		{"the caller ends first", callerEnds, nothing, errGone},
		{"the caller ends first, looked at", func(ctx context.Context, end context.CancelCauseFunc) { look(ctx, nil); end(errGone) }, nothing, errGone},
		{"the caller ends later", nothing, callerEnds, everonce.ErrAttemptEnded},
		{"the caller ends later, looked at", look, callerEnds, everonce.ErrAttemptEnded},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newReceiver(t, memstore.New(nil), everonce.Refuse, nil)
			caller, end := context.WithCancelCause(context.WithValue(context.Background(), valueKey{}, "value"))
			defer end(nil)
			var a *everonce.Attempt
			var ctx context.Context
			res, err := everonce.Do(caller, r, keyOf("x"), func(work context.Context, attempt *everonce.Attempt) (string, error) {
				c.during(work, end)
				ctx, a = work, attempt
				return "", nil
			})
			checkOutcome(t, res, err, everonce.Executed, nil)
			c.after(ctx, end)
			<-ctx.Done()
			checkErr(t, ctx.Err(), context.Canceled)
			checkErr(t, context.Cause(ctx), c.want)
			checkEqual(t, "the caller's value", ctx.Value(valueKey{}), any("value"))
			checkEqual(t, "no value", ctx.Value("no key"), nil)
			if from, ok := everonce.AttemptFrom(ctx); !ok || from != a {
				t.Error("it is not the attempt's any more")
			}
			child, cancel := context.WithCancel(ctx)
			defer cancel()
			checkErr(t, context.Cause(child), c.want)
		})
	}
}

// A child follows the work's context at once, which by way of a goroutine it could not.
func TestWorkContextHasChildren(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReceiver(t, memstore.New(nil), everonce.Refuse, nil)
		var children [8]context.Context
		told := make(chan struct{})
		do(t, r, keyOf("x"), func(ctx context.Context, _ *everonce.Attempt) (string, error) {
			looked := make(chan context.Context)
			for range children { // all at once: the first creates the context that all get
				go func() {
					child, cancel := context.WithCancel(ctx)
					context.AfterFunc(child, cancel)
					looked <- child
				}()
			}
			for i := range children {
				children[i] = <-looked
				checkErr(t, children[i].Err(), nil)
			}
			context.AfterFunc(ctx, func() { close(told) })
			return "", nil
		}, everonce.Executed, nil)
		for _, child := range children {
			checkErr(t, context.Cause(child), everonce.ErrAttemptEnded)
		}
		<-told
	})
}
