package engine

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/internal/probe"
)

var (
	errWork = errors.New("the gateway did not answer")
	// errAny is wanted where there must be an error, which is looked at elsewhere.
	errAny = errors.New("any error")

	policies = []everonce.Policy{everonce.Reexecute, everonce.Refuse, everonce.Reconcile}
)

func keyOf(id string) everonce.Key {
	return everonce.Key{Scope: everonce.ScopeOf("tenant-1", "POST /charges"), ID: id}
}

func newReceiver(t testing.TB, s everonce.Store, p everonce.Policy, o *everonce.Options) *everonce.Receiver {
	t.Helper()
	r, err := everonce.NewReceiver(s, p, o)
	if err != nil {
		t.Fatalf("NewReceiver: %v", err)
	}
	t.Cleanup(func() { checkLeftNothing(t, r) })
	return r
}

// checkLeftNothing reports what a receiver still holds when all of its calls have returned.
func checkLeftNothing(t testing.TB, r everonce.AnyReceiver) {
	t.Helper()
	if held := probe.Receiver(r); held != (probe.Held{}) {
		t.Errorf("the receiver still holds %+v", held)
	}
}

// work is what Do calls.
type work = func(context.Context, *everonce.Attempt) (string, error)

// returns is work that ends at once.
func returns(v string, err error) work {
	return func(context.Context, *everonce.Attempt) (string, error) { return v, err }
}

// never is work that must not be called.
func never(t testing.TB) work {
	return func(_ context.Context, a *everonce.Attempt) (string, error) {
		t.Errorf("the work ran, as attempt %d", a.Number())
		return "", errors.New("must not run")
	}
}

// do calls Do and checks the outcome, and that the error, if one is wanted, is it.
func do(t testing.TB, r *everonce.Receiver, key everonce.Key, w work, want everonce.Outcome, wantErr error, opts ...everonce.CallOption) (everonce.Result[string], error) {
	t.Helper()
	res, err := everonce.Do(context.Background(), r, key, w, opts...)
	checkOutcome(t, res, err, want, wantErr)
	return res, err
}

func checkOutcome[T any](t testing.TB, res everonce.Result[T], err error, want everonce.Outcome, wantErr error) {
	t.Helper()
	if res.Outcome != want {
		t.Errorf("outcome %v (%v), want %v", res.Outcome, err, want)
	}
	checkErr(t, err, wantErr)
	if e := (*everonce.Error)(nil); errors.As(err, &e) && e.Outcome != want {
		t.Errorf("the error's outcome is %v, the result's %v", e.Outcome, want)
	}
	if err != nil && !errors.Is(err, everonce.ErrNotRecorded) && !reflect.ValueOf(&res.Value).Elem().IsZero() {
		t.Errorf("value %v with the error %v", res.Value, err)
	}
}

func checkErr(t testing.TB, err, want error) {
	t.Helper()
	switch {
	case want == errAny: //nolint:errorlint // it is a mark
		if err == nil {
			t.Error("no error")
		}
	case want == nil && err != nil:
		t.Errorf("error %v, want none", err)
	case want != nil && !errors.Is(err, want):
		t.Errorf("error %v, want %v", err, want)
	}
}

func checkEqual[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

// asError returns the typed error in err.
func asError(t testing.TB, err error) *everonce.Error {
	t.Helper()
	var e *everonce.Error
	if !errors.As(err, &e) {
		t.Fatalf("%T (%v) is no *everonce.Error", err, err)
	}
	return e
}

// asPermanent returns the permanent failure in err.
func asPermanent(t testing.TB, err error) *everonce.PermanentError {
	t.Helper()
	var p *everonce.PermanentError
	if !errors.As(err, &p) {
		t.Fatalf("%T (%v) is no *everonce.PermanentError", err, err)
	}
	return p
}

// askNever is a reconciler that must not be called.
func askNever(t testing.TB) everonce.CallOption {
	return everonce.WithReconcile(func(_ context.Context, a everonce.Abandoned) (everonce.Verdict[string], error) {
		t.Errorf("the reconciler was asked about attempt %d, step %q", a.Attempt, a.Step)
		return everonce.StillUnknown[string](), nil
	})
}

func answer(v everonce.Verdict[string], err error) everonce.CallOption {
	return everonce.WithReconcile(func(context.Context, everonce.Abandoned) (everonce.Verdict[string], error) { return v, err })
}
