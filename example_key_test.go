package everonce_test

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

// A scope says who and what: no two lists of parts give the same one, whatever is in them.
func ExampleScopeOf() {
	a := everonce.ScopeOf("tenant-1", "POST /charges")
	b := everonce.ScopeOf("tenant-1/POST ", "charges")
	fmt.Println(a)
	fmt.Println(b)
	fmt.Println(a.Within("tenant-1"), b.Within("tenant-1"))
	fmt.Printf("%q\n", a.Parts())
	// Output:
	// tenant-1/POST %2Fcharges
	// tenant-1%2FPOST /charges
	// true false
	// ["tenant-1" "POST /charges"]
}

// A key that is used again for another request is refused, not answered with another's receipt.
func ExampleFingerprintOf() {
	ctx := context.Background()
	r, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}
	charge := func(amount int64, currency string) {
		key := everonce.Key{Scope: "charges", ID: "order-7"}
		res, err := everonce.Do(ctx, r, key, func(context.Context, *everonce.Attempt) (string, error) {
			return fmt.Sprintf("receipt over %d %s", amount, currency), nil
		}, everonce.FingerprintOf(amount, currency))
		fmt.Println(res.Outcome, res.Value, errors.Is(err, everonce.ErrMismatch))
	}
	charge(1250, "EUR")
	charge(1250, "EUR")
	charge(9999, "EUR")
	// Output:
	// executed receipt over 1250 EUR false
	// replayed receipt over 1250 EUR false
	// mismatch  true
}

// A request that is a struct, or a body as it arrived, is compared whole. White space is ignored; the order of a
// body's fields is not.
func ExampleFingerprintJSON() {
	type charge struct {
		Amount   int    `json:"amount"`
		Currency string `json:"currency"`
	}
	saved := everonce.FingerprintJSON(charge{1250, "EUR"})
	for _, body := range []string{
		`{ "amount": 1250, "currency": "EUR" }`,
		`{"currency":"EUR","amount":1250}`,
		`{"amount":9999,"currency":"EUR"}`,
	} {
		fmt.Println(everonce.FingerprintJSON([]byte(body)) == saved)
	}
	// Output:
	// true
	// false
	// false
}

// gobCodec has a name, which is kept with every result: read with another codec, it is refused and not
// misread.
type gobCodec struct{}

func (gobCodec) Name() string { return "gob" }

func (gobCodec) Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(v)
	return b.Bytes(), err
}

func (gobCodec) Unmarshal(data []byte, v any) error {
	return gob.NewDecoder(bytes.NewReader(data)).Decode(v)
}

// JSON has no complex numbers. The results of this call are kept in another form.
func ExampleWithCodec() {
	ctx := context.Background()
	r, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}
	measure := func(context.Context, *everonce.Attempt) (complex128, error) { return complex(3, 4), nil }
	for range 2 {
		res, err := everonce.Do(ctx, r, everonce.Key{Scope: "impedance", ID: "probe-1"}, measure, everonce.WithCodec(gobCodec{}))
		fmt.Println(res.Outcome, res.Value, err)
	}
	// Output:
	// executed (3+4i) <nil>
	// replayed (3+4i) <nil>
}

// An adapter that keeps whole answers has bytes already: nothing is encoded once more, and a duplicate gets every
// byte unchanged.
func ExampleRaw() {
	ctx := context.Background()
	r, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}
	handle := func(context.Context, *everonce.Attempt) ([]byte, error) {
		return []byte("HTTP/1.1 201 Created\r\nLocation: /orders/7\r\n\r\n"), nil
	}
	for range 2 {
		res, err := everonce.Do(ctx, r, everonce.Key{Scope: "POST /orders", ID: "order-7"}, handle, everonce.WithCodec(everonce.Raw()))
		fmt.Printf("%v %q %v\n", res.Outcome, res.Value, err)
	}
	// Output:
	// executed "HTTP/1.1 201 Created\r\nLocation: /orders/7\r\n\r\n" <nil>
	// replayed "HTTP/1.1 201 Created\r\nLocation: /orders/7\r\n\r\n" <nil>
}
