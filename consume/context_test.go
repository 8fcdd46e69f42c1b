package consume_test

import (
	"context"
	"slices"
	"testing"

	"github.com/everonce/everonce/consume"
)

// The handler and Observe get the context that Context returns for their message; in a batch, the handler gets the
// context of the batch. If Context panics or returns nil, the message is still handled.
func TestEachMessageHasItsContext(t *testing.T) {
	type id struct{}
	var handled, told []string
	within := func(ctx context.Context, m *consume.Message) context.Context {
		switch m.ID {
		case "panics":
			panic("no")
		case "nil":
			return nil
		}
		return context.WithValue(ctx, id{}, m.ID)
	}
	observe := func(ctx context.Context, _ *consume.Message, v consume.Decision) {
		is, _ := ctx.Value(id{}).(string)
		told = append(told, is+" "+v.Disposition.String())
	}
	guarded := rigged(t, func(ctx context.Context, _ *consume.Message, _ order) error {
		is, _ := ctx.Value(id{}).(string)
		handled = append(handled, is)
		return nil
	}, func(s *consume.Spec[order]) { s.Context, s.Observe = within, observe }).c
	tx := booking(t, newLedger(), func(s *txSpec) { s.Context, s.Observe = within, observe })
	ids := []string{"a", "panics", "nil", "b"}
	want := []string{"a ack", " ack", " ack", "b ack"}
	for name, c := range map[string]*consume.Consumer{"guarded": guarded, "in a transaction": tx} {
		for way, do := range map[string]func(){
			"one by one": func() {
				for _, m := range messages(ids...) {
					c.Handle(t.Context(), m)
				}
			},
			"together": func() { c.HandleBatch(t.Context(), messages(ids...)) },
			"served": func() {
				in := make(chan consume.Delivery, len(ids))
				for _, is := range ids {
					in <- message(is)
				}
				close(in)
				workers := &consume.Workers{Concurrency: 1, Log: quiet}
				if c == tx {
					workers.Batch = len(ids)
				}
				if err := c.Serve(t.Context(), in, workers); err != nil {
					t.Fatal(err)
				}
			},
		} {
			told = nil
			if do(); !slices.Equal(told, want) {
				t.Errorf("%s, %s: Observe had the contexts of %q, want %q", name, way, told, want)
			}
		}
	}
	if want := []string{"a", "", "", "b"}; !slices.Equal(handled, want) {
		t.Errorf("handlers had the contexts of %q, want %q", handled, want)
	}
}
