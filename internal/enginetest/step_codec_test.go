package enginetest

import (
	"context"
	"errors"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

// pageCodec is an adapter's: it writes pages, and nothing else.
type pageCodec struct{}

type page struct{ text string }

func (pageCodec) Name() string { return "page" }

func (pageCodec) Marshal(v any) ([]byte, error) {
	p, ok := v.(page)
	if !ok {
		return nil, errors.New("not a page")
	}
	return []byte(p.text), nil
}

func (pageCodec) Unmarshal(data []byte, v any) error {
	p, ok := v.(*page)
	if !ok {
		return errors.New("not a page")
	}
	p.text = string(data)
	return nil
}

// The steps inside an operation with a separate codec, such as an adapter's, are the application's: they are
// written by the receiver's codec, or by their own.
func TestStepDoesNotTakeOverTheCodecOfTheCall(t *testing.T) {
	s := memstore.New(nil)
	r := newReceiver(t, s, everonce.Refuse, nil)
	key := keyOf("x")
	attempt := func(work stepWork, outcome everonce.Outcome, end error) {
		t.Helper()
		res, err := everonce.Do(t.Context(), r, key, func(ctx context.Context, a *everonce.Attempt) (page, error) {
			v, err := everonce.Step(ctx, a, "charge", work)
			checkErr(t, err, nil)
			checkEqual(t, "the step's value", v, "receipt")
			n, err := everonce.Step(ctx, a, "count", func(context.Context) ([]byte, error) { return []byte("7"), nil }, everonce.WithCodec(everonce.Raw()))
			checkErr(t, err, nil)
			checkEqual(t, "the other step's value", string(n), "7")
			return page{"<p>paid"}, end
		}, everonce.WithCodec(pageCodec{}))
		checkErr(t, err, end)
		checkEqual(t, "outcome", res.Outcome, outcome)
	}
	attempt(stepReturns("receipt", nil), everonce.Failed, everonce.NotDone(errWork))
	for step, codec := range map[string]string{"charge": "json", "count": "raw"} {
		rec, _ := stepIn(t, s, key, step)
		checkEqual(t, "the codec of "+step, rec.Result.Codec, codec)
	}
	attempt(stepNever(t), everonce.Executed, nil)
}
