package consume_test

import (
	"runtime"
	"slices"
	"testing"

	"github.com/everonce/everonce/consume"
)

// A key or a decoder that ends the goroutine, as t.FailNow does, makes the message a dead letter, like one that
// panics. The other messages are handled.
func TestAReaderThatEndsItsGoroutine(t *testing.T) {
	exits := func(m *consume.Message) {
		if m.ID == "exits" {
			runtime.Goexit()
		}
	}
	key := func(m *consume.Message) (string, error) { exits(m); return m.ID, nil }
	decode := func(m *consume.Message) (order, error) { exits(m); return order{}, nil }
	for name, c := range map[string]struct {
		consumer *consume.Consumer
		workers  consume.Workers
		want     string
	}{
		"a key":                  {rigged(t, done, func(s *consume.Spec[order]) { s.Key = key }).c, consume.Workers{}, "set_aside no_key"},
		"a decoder":              {rigged(t, done, func(s *consume.Spec[order]) { s.Decode = decode }).c, consume.Workers{}, "set_aside undecodable"},
		"a key in a batch":       {booking(t, newLedger(), func(s *txSpec) { s.Key = key }), consume.Workers{Batch: 3}, "set_aside no_key"},
		"a decoder in a batch":   {booking(t, newLedger(), func(s *txSpec) { s.Decode = decode }), consume.Workers{Batch: 3}, "set_aside undecodable"},
		"a decoder under a name": {rigged(t, done, func(s *consume.Spec[order]) { s.Decode = decode }).c, consume.Workers{Order: bySource}, "set_aside undecodable"},
	} {
		t.Run(name, func(t *testing.T) {
			before, exits, behind := message("before"), message("exits"), message("behind")
			in := make(chan consume.Delivery, 3)
			for _, d := range []*delivery{before, exits, behind} {
				in <- d
			}
			close(in)
			c.workers.Concurrency, c.workers.Log = 1, quiet
			if err := c.consumer.Serve(t.Context(), in, &c.workers); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(exits.ended, []string{c.want}) || !slices.Equal(before.ended, []string{"ack"}) || !slices.Equal(behind.ended, []string{"ack"}) {
				t.Errorf("they ended as %v, %v and %v", before.ended, exits.ended, behind.ended)
			}
		})
	}
}
