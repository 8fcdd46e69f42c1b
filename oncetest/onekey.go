package oncetest

import (
	"context"
	"sync"
	"testing"

	"github.com/everonce/everonce/consume"
)

// Keys records the keys of the messages that a consumer receives, to test that a message which your producer sends
// again keeps its key. Make one with [RecordKeys].
type Keys struct {
	key  consume.Key
	more chan struct{}

	mu       sync.Mutex
	messages map[*consume.Message]bool // a consumer may ask several times for one
	seen     []string
}

// RecordKeys returns a recorder of what key returns. Give the consumer under test its method [Keys.Key] in place of
// key:
//
//	keys := oncetest.RecordKeys(consume.ProducerID())
//	consumer := newConsumer(t, keys.Key)
//	go consumer.Run(ctx)
//	for range 2 {
//		publish(ctx, order) // as the producer does when it got no answer
//	}
//	keys.WantOne(ctx, t, 2)
//
// Some client libraries make a new message ID for each publish. Then both messages take effect, and nothing else fails.
func RecordKeys(key consume.Key) *Keys {
	return &Keys{key: key, more: make(chan struct{}, 1), messages: map[*consume.Message]bool{}}
}

// Key is a [consume.Key]. It records the key of each message once, and an empty one for a message that has none.
// Redeliveries and retries are not recorded, since the producer did not send them. It may be called concurrently.
func (k *Keys) Key(m *consume.Message) (string, error) {
	key, err := k.key(m)
	whole, _ := k.key.Of(m) //nolint:errcheck // err has it; with what the consumer adds to the key
	k.mu.Lock()
	defer k.mu.Unlock()
	if m.Redelivered || m.Retries > 0 || k.messages[m] {
		return key, err
	}
	k.messages[m] = true
	k.seen = append(k.seen, whole)
	select {
	case k.more <- struct{}{}:
	default:
	}
	return key, err
}

// WantOne waits until that many messages have come, and reports an error if they have different keys, or none. It
// fails the test if ctx ends before they have come. The recorder is empty afterwards.
func (k *Keys) WantOne(ctx context.Context, tb testing.TB, messages int) {
	tb.Helper()
	for {
		if seen := k.take(messages); seen != nil {
			wantOne(tb, seen)
			return
		}
		select {
		case <-k.more:
		case <-ctx.Done():
			tb.Fatalf("oncetest: %d of %d messages came: %v", len(k.take(0)), messages, context.Cause(ctx))
		}
	}
}

// take returns the keys so far and forgets them, or nil if there are fewer than wanted.
func (k *Keys) take(wanted int) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.seen) < wanted {
		return nil
	}
	seen := k.seen
	k.seen = nil
	return seen
}

func wantOne(tb testing.TB, seen []string) {
	tb.Helper()
	for i, key := range seen {
		switch {
		case key == "":
			tb.Errorf("oncetest: message %d of %d has no key", i+1, len(seen))
			return
		case key != seen[0]:
			tb.Errorf("oncetest: the same message came under the keys %q and %q: sent again, it takes effect again (set the ID once for each event, or take the key from a field that does not change)", seen[0], key)
			return
		}
	}
}
