package everonce_test

import (
	"bytes"
	"context"
	"encoding/gob"
	"fmt"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

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

// An adapter that keeps whole answers has bytes already: nothing is encoded once more, and a duplicate
// gets every byte as it was.
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
