package oncetest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/everonce/everonce/consume"
)

// TestOneMessageIsCountedOnce: a consumer that asks twice for the key of a message, a retry and a redelivery do not
// stand for the producer's second message, which comes with another key.
func TestOneMessageIsCountedOnce(t *testing.T) {
	t.Parallel()
	keys := RecordKeys(consume.ProducerID())
	first := &consume.Message{ID: "random-0"}
	for _, m := range []*consume.Message{first, first, {ID: "random-0", Redelivered: true}, {ID: "random-0", Retries: 1}, {ID: "random-1"}} {
		_, _ = keys.Key(m)
	}
	if said := recorded(t, func(tb testing.TB) { keys.WantOne(t.Context(), tb, 2) }).text(); !strings.Contains(said, `under the keys "random-0" and "random-1"`) {
		t.Errorf("it said %q", said)
	}
}

// TestProducersThatSendAgain: a producer that keeps the ID passes; one that makes a new ID for each publish, or
// none, does not.
func TestProducersThatSendAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		id   func(publish int) string
		want string
	}{
		"keeps the ID":         {func(int) string { return "order-1" }, ""},
		"new ID each time":     {func(n int) string { return fmt.Sprint("random-", n) }, `under the keys "random-0" and "random-1"`},
		"without an ID":        {func(int) string { return "" }, "message 1 of 2 has no key"},
		"loses the second one": {nil, "1 of 2 messages came"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys := RecordKeys(consume.ProducerID())
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			said := recorded(t, func(tb testing.TB) {
				for n := range 2 {
					if c.id == nil {
						cancel()
						_, _ = keys.Key(&consume.Message{ID: "order-1"})
						break
					}
					_, _ = keys.Key(&consume.Message{ID: c.id(n)})
				}
				keys.WantOne(ctx, tb, 2)
			}).text()
			if !strings.Contains(said, c.want) || c.want == "" && said != "" {
				t.Errorf("it said %q, want %q", said, c.want)
			}
		})
	}
}
