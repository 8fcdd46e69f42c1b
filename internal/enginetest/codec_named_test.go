package enginetest

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

type (
	blob  []byte
	token string
)

// A type that is bytes by another name is kept like bytes: the first caller would not hear of it if not.
func TestRawCodecOfNamedTypes(t *testing.T) {
	checkRawRoundTrip(t, "bytes", blob("x\x00y"))
	checkRawRoundTrip(t, "empty bytes", body{})
	checkRawRoundTrip(t, "JSON", json.RawMessage(`{"a":1}`))
	checkRawRoundTrip(t, "string", token("r-1"))
	checkRawRoundTrip(t, "empty string", token(""))
}

func checkRawRoundTrip[T any](t *testing.T, name string, v T) {
	t.Helper()
	r := newReceiver(t, memstore.New(nil), everonce.Refuse, &everonce.Options{Codec: everonce.Raw()})
	for _, want := range []everonce.Outcome{everonce.Executed, everonce.Replayed} {
		res, err := everonce.Do(context.Background(), r, keyOf("x"), func(context.Context, *everonce.Attempt) (T, error) { return v, nil })
		checkErr(t, err, nil)
		checkEqual(t, name+": outcome", res.Outcome, want)
		checkEqual(t, name+": value", res.Value, v)
	}
}

// The codec copies named byte types in both directions, as it does []byte.
func TestRawCodecCopiesNamedBytes(t *testing.T) {
	c := everonce.Raw()
	src := blob("abc")
	data, err := c.Marshal(src)
	checkErr(t, err, nil)
	spoil(src)
	checkEqual(t, "marshalled", string(data), "abc")
	var back blob
	checkErr(t, c.Unmarshal(data, &back), nil)
	spoil(data)
	checkEqual(t, "unmarshalled", string(back), "abc")
	for _, v := range []any{new(int), (*blob)(nil), blob("x"), new([]int), nil} {
		checkErr(t, c.Unmarshal(data, v), errAny)
	}
	for _, v := range []any{5, []int{1}, [1]byte{1}, nil} {
		_, err := c.Marshal(v)
		checkErr(t, err, errAny)
	}
}
