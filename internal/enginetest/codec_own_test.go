package enginetest

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// Changing a value that a caller got changes neither the saved one nor another caller's, whichever came first.
func TestValuesAreTheCallersOwn(t *testing.T) {
	for name, codec := range map[string]everonce.Codec{"json": everonce.JSON(), "raw": everonce.Raw()} {
		t.Run(name, func(t *testing.T) {
			r := newReceiver(t, memstore.New(nil), everonce.Refuse, &everonce.Options{Codec: codec})
			checkValuesAreOwn(t, r, keyOf("bytes"), []byte(`"v"`))
			checkValuesAreOwn(t, r, keyOf("raw"), json.RawMessage(`"v"`))
		})
	}
}

func checkValuesAreOwn[T ~[]byte](t *testing.T, r *everonce.Receiver, key everonce.Key, v T) {
	t.Helper()
	want := string(v)
	for range 3 {
		res, err := everonce.Do(context.Background(), r, key, func(context.Context, *everonce.Attempt) (T, error) { return v, nil })
		checkErr(t, err, nil)
		checkEqual(t, "value", string(res.Value), want)
		clear(res.Value)
	}
}

// A json.RawMessage that is no JSON has not been encoded: it is elided, and not saved as it stands.
func TestRawMessageThatIsNoJSON(t *testing.T) {
	r := newReceiver(t, memstore.New(nil), everonce.Refuse, nil)
	for _, want := range []everonce.Outcome{everonce.Executed, everonce.Elided} {
		res, _ := everonce.Do(context.Background(), r, keyOf("x"), func(context.Context, *everonce.Attempt) (json.RawMessage, error) {
			return json.RawMessage("{"), nil
		})
		checkEqual(t, "outcome", res.Outcome, want)
	}
}

// A negative number is the same number in every type; an interface in a part holds what it holds; a field that its
// tag leaves out is left out on purpose.
func TestFingerprintOfEqualValues(t *testing.T) {
	checkEqual(t, "int32", everonce.FingerprintOf(int32(-1)), everonce.FingerprintOf(-1))
	type free struct{ V any }
	checkEqual(t, "an int in an interface", everonce.FingerprintOf(free{5}).Alg, "parts/1")
	type hidden struct {
		At int `json:"-"`
	}
	checkEqual(t, "left out by its tag", everonce.FingerprintOf(hidden{1}), everonce.FingerprintOf(hidden{2}))
	checkEqual(t, "and not refused", everonce.FingerprintOf(hidden{1}).Alg, "parts/1")
}

// A detail without bytes is no detail, for the first caller as for those who come again.
func TestPermanentErrorWithAnEmptyDetail(t *testing.T) {
	r := newReceiver(t, memstore.New(nil), everonce.Refuse, nil)
	_, first := do(t, r, keyOf("x"), returns("", &everonce.PermanentError{Code: "declined", Detail: []byte{}}), everonce.Rejected, errAny)
	_, again := do(t, r, keyOf("x"), never(t), everonce.Rejected, errAny)
	checkEqual(t, "replay", *asPermanent(t, again), *asPermanent(t, first))
}

// An unreadable record is not read again and again.
func TestLookupOfACorruptRecord(t *testing.T) {
	s := newFaultStore()
	s.on("Get", 0, refuse(driver.ErrCorruptRecord))
	_, err := everonce.Lookup[string](context.Background(), newReceiver(t, s, everonce.Refuse, nil), keyOf("x"))
	checkErr(t, err, driver.ErrCorruptRecord)
	checkEqual(t, "looks", s.count("Get"), 1)
}
