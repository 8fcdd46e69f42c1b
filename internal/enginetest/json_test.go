package enginetest

import (
	"context"
	"encoding/json"
	"math/big"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

type (
	// price has no exported field.
	price struct{ cents int }
	order struct {
		ID    string         `json:",omitzero"`
		Items map[string]int `json:",omitempty"`
	}
	// emptySet has a MarshalJSON that writes {}.
	emptySet struct{ members map[string]bool }
)

func (s emptySet) MarshalJSON() ([]byte, error) { return json.Marshal(s.members) }

// A duplicate gets what the first caller got, byte for byte where it is JSON already (rule 11).
func TestJSONKeeps(t *testing.T) {
	checkJSON(t, "a struct", order{ID: "7"}, true)
	checkJSON(t, "no fields", struct{}{}, true)
	checkJSON(t, "no exported fields, zero", price{}, true)
	checkJSON(t, "nothing but a field left out", &struct {
		Empty map[string]int `json:",omitempty"`
	}{}, true)
	checkJSON(t, "an empty map", map[string]int{}, true)
	checkJSON(t, "a MarshalJSON", big.NewInt(7), true)
	checkJSON(t, "the replacement character, and its escape as text", "\uFFFD \\ufffd", true)
	checkJSON(t, "bytes that are not UTF-8", []byte("\xff"), true)
	checkJSON(t, "raw", json.RawMessage(`["\ufffd",{}]`), true)
	checkJSON(t, "raw with spaces", json.RawMessage("{\"a\": 1}\n"), true)
	checkJSON(t, "raw with what JSON escapes", json.RawMessage(`{"a":"<&>"}`), true)
	checkJSON(t, "raw null", json.RawMessage("null"), true)
}

// A type without exported fields is distinguished from one that leaves its fields out on purpose.
func TestJSONThatIsEmpty(t *testing.T) {
	for _, v := range []any{order{Items: map[string]int{}}, struct{ order }{order{Items: map[string]int{}}}, emptySet{map[string]bool{}}} {
		data, err := everonce.JSON().Marshal(v)
		checkErr(t, err, nil)
		checkEqual(t, "JSON", string(data), "{}")
	}
}

// A result that would come back as a zero value, or changed by its bytes alone, is elided (rule 10).
func TestJSONElides(t *testing.T) {
	checkJSON(t, "no exported fields", price{5}, false)
	checkJSON(t, "a pointer to them", &price{5}, false)
	checkJSON(t, "a MarshalJSON of the pointer alone", *big.NewInt(7), false)
	checkJSON(t, "text that is not UTF-8", "a\xff", false)
	checkJSON(t, "it behind a backslash", order{ID: "\\\xff"}, false)
	checkJSON(t, "it as a map's key", map[string]int{"\xff": 1}, false)
}

func checkJSON[T any](t *testing.T, name string, v T, kept bool) {
	t.Run(name, func(t *testing.T) {
		r := newReceiver(t, memstore.New(nil), everonce.Refuse, nil)
		run := func() (everonce.Result[T], error) {
			return everonce.Do(context.Background(), r, keyOf("x"), func(context.Context, *everonce.Attempt) (T, error) { return v, nil })
		}
		res, err := run()
		checkOutcome(t, res, err, everonce.Executed, nil)
		res, err = run()
		if !kept {
			checkOutcome(t, res, err, everonce.Elided, everonce.ErrResultElided)
			return
		}
		checkOutcome(t, res, err, everonce.Replayed, nil)
		checkEqual(t, "value", res.Value, v)
	})
}

// Values that all have one JSON would let another request pass for this one.
func TestFingerprintOfValuesWithTheSameJSON(t *testing.T) {
	r := newReceiver(t, memstore.New(nil), everonce.Refuse, nil)
	for name, f := range map[string]everonce.Fingerprint{
		"no exported fields":     everonce.FingerprintOf("id", price{5}),
		"as JSON":                everonce.FingerprintJSON(&price{5}),
		"an error":               everonce.FingerprintOf(errWork),
		"text that is not UTF-8": everonce.FingerprintOf(order{ID: "\xff"}),
		"it as JSON":             everonce.FingerprintJSON(map[string]string{"id": "\xfe"}),
	} {
		t.Run(name, func(t *testing.T) {
			do(t, r, keyOf(name), never(t), everonce.Invalid, everonce.ErrInvalidArgument, f)
		})
	}
	for name, f := range map[string]everonce.Fingerprint{
		"zero": everonce.FingerprintOf(price{}), "text that is a part": everonce.FingerprintOf("\xff"), "a MarshalJSON": everonce.FingerprintOf(big.NewInt(1)),
	} {
		do(t, r, keyOf(name), returns("v", nil), everonce.Executed, nil, f)
	}
}

// A settlement's value is read as the type of the operation's result, whatever type it was given as.
func TestSettlementIsReadAsTheResultsType(t *testing.T) {
	r := newReceiver(t, memstore.New(nil), everonce.Refuse, nil)
	leaveUnknown(t, r, keyOf("x"))
	checkErr(t, r.Settle(context.Background(), keyOf("x"), everonce.Settlement{Verdict: everonce.SettleDone, Value: price{5}}), everonce.ErrInvalidArgument)
	settlement := everonce.Settlement{Verdict: everonce.SettleDone, Value: map[string]any{"b": 7, "a": []int{1}}}
	checkErr(t, r.Settle(context.Background(), keyOf("x"), settlement), nil)
	res, err := everonce.Do(context.Background(), r, keyOf("x"), func(context.Context, *everonce.Attempt) (account, error) { return account{}, errWork })
	checkOutcome(t, res, err, everonce.Replayed, nil)
	checkEqual(t, "settled", res.Value, account{B: 7, A: []int{1}})
}
