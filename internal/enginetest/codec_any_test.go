package enginetest

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

type status string

type envelope struct {
	ID   string
	Data any
}

// In an interface JSON gives back what it makes of JSON, and not what was in it: an int would come back as a float64, which a caller
// who reads it as an int has not, and which is another number beyond 2^53 (rule 11).
func TestWhatAnInterfaceHolds(t *testing.T) {
	checkKept[any](t, "nothing", nil, true)
	checkKept[any](t, "a text", "v", true)
	checkKept[any](t, "a bool", true, true)
	checkKept[any](t, "a float64", 0.1, true)
	checkKept[any](t, "all of them", map[string]any{"a": []any{"x", 1.5, false, nil, map[string]any{}, []any{}}}, true)
	checkKept(t, "a map", map[string]any{"id": "7", "sum": 7.5}, true)
	checkKept(t, "a list", []any{"7", nil}, true)
	checkKept(t, "a field", envelope{"7", map[string]any{"paid": true}}, true)
	checkKept(t, "an empty field", &envelope{ID: "7"}, true)
	checkKept(t, "no interface", map[string]int{"amount": 7}, true)
	checkKept[json.Marshaler](t, "none of its methods", nil, true)

	checkKept[any](t, "an int", 7, false)
	checkKept[any](t, "an int64", int64(1)<<53+1, false)
	checkKept[any](t, "a number", json.Number("7"), false)
	checkKept[any](t, "a named text", status("paid"), false)
	checkKept[any](t, "a float32", float32(1.5), false)
	checkKept[any](t, "a time", noon, false)
	checkKept[any](t, "bytes", []byte("v"), false)
	checkKept[any](t, "raw", json.RawMessage(`"v"`), false)
	checkKept[any](t, "a struct", account{}, false)
	checkKept[any](t, "a pointer", new(string), false)
	checkKept[any](t, "a list of texts", []string{"v"}, false)
	checkKept[any](t, "a map of texts", map[string]string{"a": "v"}, false)
	checkKept[any](t, "a map that is nil", map[string]any(nil), false)
	checkKept[any](t, "a list that is nil", []any(nil), false)
	checkKept[any](t, "text that is not UTF-8", "\xff", false)
	checkKept[any](t, "deep in it", map[string]any{"a": []any{map[string]any{"amount": 7}}}, false)
	checkKept(t, "a map of it", map[string]any{"amount": 7}, false)
	checkKept(t, "a list of it", []any{7}, false)
	checkKept(t, "a field of it", envelope{"7", 7}, false)
	checkKept(t, "behind a pointer", &envelope{"7", account{}}, false)
	checkKept[fmt.Stringer](t, "an interface with methods", time.Second, false)
	checkKept[error](t, "an error", errWork, false)
}

// A fingerprint is never read back: what it holds may be anything that has a JSON.
func TestFingerprintOfAnInterface(t *testing.T) {
	one, two := everonce.FingerprintJSON(map[string]any{"amount": 7}), everonce.FingerprintJSON(map[string]any{"amount": 8})
	r := newReceiver(t, memstore.New(nil), everonce.Refuse, nil)
	do(t, r, keyOf("x"), returns("v", nil), everonce.Executed, nil, one)
	do(t, r, keyOf("x"), never(t), everonce.Replayed, nil, one)
	do(t, r, keyOf("x"), never(t), everonce.Mismatch, everonce.ErrMismatch, two)
}

// The result of a step is kept by the same rule, and a settlement's value as the type that it has: the result's type is not known.
func TestStepsAndSettlementsOfAnInterface(t *testing.T) {
	r := newReceiver(t, memstore.New(nil), everonce.Refuse, nil)
	for _, want := range []error{nil, everonce.ErrResultElided} {
		inAttempt(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) {
			v, err := everonce.Step(ctx, a, "s", func(context.Context) (any, error) { return 7, nil })
			checkErr(t, err, want)
			if want == nil {
				checkEqual(t, "the first time", v, any(7))
			}
		})
	}
	leaveUnknown(t, r, keyOf("y"))
	checkErr(t, r.Settle(context.Background(), keyOf("y"), everonce.Settlement{Verdict: everonce.SettleDone, Value: 7}), nil)
	res, err := everonce.Do(context.Background(), r, keyOf("y"), func(context.Context, *everonce.Attempt) (int, error) { return 0, errWork })
	checkOutcome(t, res, err, everonce.Replayed, nil)
	checkEqual(t, "settled", res.Value, 7)

	leaveUnknown(t, r, keyOf("z"))
	verdict := everonce.Settlement{Verdict: everonce.SettleDone, Value: map[string]any{"b": 7, "a": []int{1}}}
	checkErr(t, r.Settle(context.Background(), keyOf("z"), verdict), nil)
	typed, err := everonce.Do(context.Background(), r, keyOf("z"), func(context.Context, *everonce.Attempt) (account, error) { return account{}, errWork })
	checkOutcome(t, typed, err, everonce.Replayed, nil)
	checkEqual(t, "settled", typed.Value, account{B: 7, A: []int{1}})
	for _, lost := range []any{price{5}, "\xff", map[string]any{"a": event{noon, 1}}} {
		leaveUnknown(t, r, keyOf("lost"))
		checkErr(t, r.Settle(context.Background(), keyOf("lost"), everonce.Settlement{Verdict: everonce.SettleDone, Value: lost}), everonce.ErrInvalidArgument)
		checkErr(t, r.Settle(context.Background(), keyOf("lost"), everonce.Settlement{Verdict: everonce.SettleNotDone}), nil)
	}
}
