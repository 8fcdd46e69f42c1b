package enginetest

import (
	"context"
	"encoding/json"
	"errors"
	"math/big"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

type (
	// price keeps its fields to itself.
	price struct{ cents int }
	order struct {
		ID    string `json:"id"`
		Price price  `json:"price"`
	}
	invoice struct{ Sum big.Int }
)

// A duplicate gets what the first caller got, or hears that it was not kept: never something else (rules 10 and 11).
func TestJSONKeepsTheValueOrNothing(t *testing.T) {
	checkKept(t, "with a JSON of its own", &invoice{*big.NewInt(7)}, true)
	checkKept(t, "a pointer to a number", big.NewInt(7), true)
	checkKept(t, "nothing to say", struct{}{}, true)
	checkKept(t, "an empty map", map[string]int{}, true)
	checkKept(t, "zero, unsaid", order{ID: "7"}, true)
	checkKept(t, "not of JSON", struct {
		ID    string
		Price price `json:"-"`
		Empty map[string]int
	}{ID: "7", Empty: map[string]int{}}, true)
	checkKept(t, "a replaced rune as such", "\uFFFD \\ufffd", true)
	checkKept(t, "bytes", []byte("\xff"), true)
	checkKept(t, "raw", json.RawMessage(`["\ufffd",{}]`), true)
	checkKept(t, "raw with spaces", json.RawMessage("{\"a\": 1}\n"), true)
	checkKept(t, "raw with what JSON escapes", json.RawMessage(`{"a":"<&>"}`), true)
	checkKept(t, "raw null", json.RawMessage("null"), true)

	checkKept(t, "fields that are not exported", price{5}, false)
	checkKept(t, "a pointer to them", &price{5}, false)
	checkKept(t, "they in a field", order{"7", price{5}}, false)
	checkKept(t, "a JSON that only its address has", *big.NewInt(7), false)
	checkKept(t, "that in a field", invoice{*big.NewInt(7)}, false)
	checkKept(t, "they in a list", []price{{5}}, false)
	checkKept(t, "they in a map", map[string]price{"a": {5}}, false)
	checkKept[any](t, "they in any", []any{price{5}}, false)
	checkKept(t, "text that is not UTF-8", "a\xff", false)
	checkKept(t, "it in a field", order{ID: "a\xff"}, false)
	checkKept(t, "it as a map's key", map[string]int{"\xff": 1}, false)
}

func checkKept[T any](t *testing.T, name string, v T, kept bool) {
	t.Helper()
	ctx := context.Background()
	r := newReceiver(t, memstore.New(nil), everonce.Refuse, nil)
	work := func(context.Context, *everonce.Attempt) (T, error) { return v, nil }
	for _, want := range []everonce.Outcome{everonce.Executed, everonce.Replayed} {
		if want == everonce.Replayed && !kept {
			res, err := everonce.Do(ctx, r, keyOf("x"), work)
			if res.Outcome != everonce.Elided || !errors.Is(err, everonce.ErrResultElided) {
				t.Errorf("%s: %v, %+v, %v; want it elided", name, res.Outcome, res.Value, err)
			}
			return
		}
		res, err := everonce.Do(ctx, r, keyOf("x"), work)
		checkErr(t, err, nil)
		checkEqual(t, name+": outcome", res.Outcome, want)
		checkEqual(t, name+": value", res.Value, v)
	}
}

// What stands in no JSON is equal to any other: such a part would let another request pass for this one.
func TestFingerprintOfWhatJSONLeavesOut(t *testing.T) {
	r := newReceiver(t, memstore.New(nil), everonce.Refuse, nil)
	for name, f := range map[string]everonce.Fingerprint{
		"fields that are not exported": everonce.FingerprintOf("id", price{5}),
		"a pointer to them":            everonce.FingerprintOf(&price{5}),
		"they in a field":              everonce.FingerprintOf(order{"7", price{5}}),
		"an error":                     everonce.FingerprintOf(errWork),
		"as JSON":                      everonce.FingerprintJSON(order{"7", price{5}}),
		"a number without its address": everonce.FingerprintOf(*big.NewInt(7)),
		"text that is not UTF-8":       everonce.FingerprintOf(order{ID: "\xff"}),
		"it as JSON":                   everonce.FingerprintJSON(map[string]string{"id": "\xfe"}),
	} {
		t.Run(name, func(t *testing.T) {
			do(t, r, keyOf(name), never(t), everonce.Invalid, everonce.ErrInvalidArgument, f)
		})
	}
	if everonce.FingerprintOf(big.NewInt(1)) == everonce.FingerprintOf(big.NewInt(2)) {
		t.Error("numbers are not told apart")
	}
	for name, f := range map[string]everonce.Fingerprint{
		"zero": everonce.FingerprintOf(order{ID: "7"}), "such a text by itself": everonce.FingerprintOf("\xff"),
	} {
		do(t, r, keyOf(name), returns("v", nil), everonce.Executed, nil, f)
	}
}
