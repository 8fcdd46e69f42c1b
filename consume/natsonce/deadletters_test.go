package natsonce_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/natsonce"
	"github.com/everonce/everonce/store/memstore"
)

// open opens the dead letters of the bench's stream.
func (b *bench) open() *natsonce.DeadLetters {
	b.t.Helper()
	l, err := natsonce.DialDeadLetters(context.Background(), b.url, b.queue, quick(nil))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { l.Close() }) //nolint:errcheck // nothing is on its way
	return l
}

func list(t testing.TB, l *natsonce.DeadLetters, filter consume.Filter) []consume.DeadLetter {
	t.Helper()
	var all []consume.DeadLetter
	for letter, err := range l.All(context.Background(), filter) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, letter)
	}
	return all
}

// setAside makes dead letters of messages.
func (b *bench) setAside(store everonce.Store, msgs ...*nats.Msg) {
	b.t.Helper()
	r := b.runOn(store, specOf(func(_ context.Context, _ *consume.Message, o order) error {
		return everonce.NotDone(errors.New("no " + o.ID))
	}), nil)
	before := len(b.letters())
	for _, msg := range msgs {
		b.publish(msg)
	}
	b.eventually("they are dead letters", func() bool { return len(b.letters()) == before+len(msgs) })
	b.settled()
	r.stop()
}

// Trap: the stream drops a message with a known ID, and says that it is stored: a replay with the message's ID would
// be lost. The copy has a new ID, and the handler sees the message's.
func TestTrapAReplayWithTheIDThatTheStreamKnows(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	store := memstore.New(nil)
	msg := b.message("m-1")
	msg.Header.Set(jetstream.MsgIDHeader, "event-1")
	b.setAside(store, msg)
	l := b.open()
	if n, err := l.Replay(context.Background(), consume.Filter{}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	seen := make(chan consume.Message, 1)
	spec := specOf(func(_ context.Context, m *consume.Message, _ order) error { seen <- *m; return nil })
	spec.Key = consume.Header(jetstream.MsgIDHeader)
	b.runOn(store, spec, nil).wants(everonce.Executed)
	if m := <-seen; m.Headers[jetstream.MsgIDHeader] != "event-1" || m.Headers["Order-Id"] != "m-1" || m.Subject != msg.Subject || m.Retries != 0 || len(m.OmittedHeaders) > 0 {
		t.Errorf("%+v", m)
	}
	if all := b.letters(); len(all) != 0 {
		t.Errorf("%d dead letters are left", len(all))
	}
}

// A replay of a message that was done meanwhile is a duplicate; one that fails again has its number of replays.
func TestReplays(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	store := memstore.New(nil)
	b.setAside(store, b.message("m-1"), b.message("m-2"))
	r := b.runOn(store, specOf(nothing), nil)
	b.send("m-1")
	r.wants(everonce.Executed)
	b.settled()
	l := b.open()
	if n, err := l.Replay(context.Background(), consume.Filter{Only: func(l *consume.DeadLetter) bool { return l.Message.Headers["Order-Id"] == "m-1" }}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	r.wants(everonce.Replayed)
	r.stop()
	again := b.runOn(store, specOf(func(context.Context, *consume.Message, order) error { return everonce.NotDone(errors.New("no")) }), nil)
	first := list(t, l, consume.Filter{})
	if n, err := l.Replay(context.Background(), consume.Filter{}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	for range 4 {
		again.wants(everonce.Failed)
	}
	b.settled()
	if second := list(t, l, consume.Filter{}); len(second) != 1 || second[0].Replays != 1 || !second[0].First.Equal(first[0].First) || second[0].Attempts != 4 {
		t.Errorf("%+v", second)
	}
}

// A dead letter has its origin, can be selected by its fields, and reads the same each time.
func TestDeadLettersAreSelected(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.setAside(memstore.New(nil), b.message("m-1"), b.message("m-2"), b.message("m-3"))
	l := b.open()
	all := list(t, l, consume.Filter{Queue: b.queue.Stream, Reasons: []consume.Reason{consume.Exhausted}})
	if len(all) != 3 || !reflect.DeepEqual(all, list(t, b.open(), consume.Filter{})) {
		t.Fatalf("%+v", all)
	}
	for _, letter := range all {
		id := letter.Message.Headers["Order-Id"]
		if letter.Detail != "no "+id || letter.Queue != b.queue.Stream || letter.Source != b.queue.Stream || letter.Message.Subject != b.queue.Stream+".placed" ||
			string(letter.Message.Body) != `{"id":"`+id+`"}` || letter.Consumer != "billing" || letter.Last.IsZero() || len(letter.ID) != 16 {
			t.Errorf("%+v", letter)
		}
	}
	if found := list(t, l, consume.Filter{ID: all[1].ID}); len(found) != 1 || found[0].ID != all[1].ID {
		t.Errorf("%+v", found)
	}
	if n, err := l.Discard(context.Background(), consume.Filter{Limit: 2}); n != 2 || err != nil {
		t.Error(n, err)
	}
	if left := list(t, l, consume.Filter{}); len(left) != 1 || left[0].ID != all[2].ID {
		t.Errorf("%+v", left)
	}
	if n, err := l.Consumers(context.Background()); n != 0 || err != nil {
		t.Error(n, err)
	}
	for _, err := range l.All(context.Background(), consume.Filter{Limit: -1}) {
		if !errors.Is(err, everonce.ErrInvalidArgument) {
			t.Error(err)
		}
	}
}

// A message that is set aside twice is one dead letter: here because the durable consumer has lost its position,
// elsewhere after a crash before the acknowledgement.
func TestSetAsideTwiceIsOneDeadLetter(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	spec := specOf(func(context.Context, *consume.Message, order) error {
		return everonce.Permanent("no", errors.New("no"), nil)
	})
	b.send("m-1")
	for range 2 {
		r := b.run(spec, one)
		r.wants(everonce.Rejected)
		b.settled()
		r.stop()
		b.letter()
		if err := b.js.DeleteConsumer(context.Background(), b.queue.Stream, "billing"); err != nil {
			t.Fatal(err)
		}
	}
}

// A dead letter whose stream is gone is not replayed, nor is a message from elsewhere; the others are replayed.
func TestDeadLettersThatCannotBeReplayedAreKept(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.setAside(memstore.New(nil), b.message("m-1"))
	b.publish(&nats.Msg{Subject: b.dead() + ".strange", Data: []byte("hello")})
	if err := b.js.DeleteStream(context.Background(), b.queue.Stream); err != nil {
		t.Fatal(err)
	}
	l := b.open()
	n, err := l.Replay(context.Background(), consume.Filter{})
	if n != 0 || err == nil || !strings.Contains(err.Error(), b.queue.Stream) || len(b.letters()) != 2 {
		t.Errorf("%d, %v", n, err)
	}
	// Another stream that takes the subject by now is not the one that is meant.
	other := b.queue.Stream + "-other"
	b.stream(jetstream.StreamConfig{Name: other, Subjects: []string{b.queue.Stream + ".>"}})
	defer b.js.DeleteStream(context.Background(), other) //nolint:errcheck // best effort
	if n, err := l.Replay(context.Background(), consume.Filter{}); n != 0 || err == nil {
		t.Errorf("%d, %v", n, err)
	}
}

// A dead letter of a stream that has sources, or is a mirror, goes to the stream that has its subject, and comes back
// from there.
func TestDeadLettersOfSourcesAndMirrors(t *testing.T) {
	t.Parallel()
	for kind, c := range map[string]jetstream.StreamConfig{
		"sourced": {Sources: []*jetstream.StreamSource{{}}},
		"mirror":  {Mirror: &jetstream.StreamSource{}},
	} {
		b := newBench(t)
		for _, of := range append(c.Sources, c.Mirror) {
			if of != nil {
				of.Name = b.queue.Stream
			}
		}
		c.Name = b.queue.Stream + "-" + kind
		b.stream(c)
		defer b.js.DeleteStream(context.Background(), c.Name) //nolint:errcheck // best effort
		other := *b
		other.queue = natsonce.Queue{Stream: c.Name, DeadLetters: b.dead(), Counts: b.counts()}
		store, fail := memstore.New(nil), true
		r := other.runOn(store, specOf(func(context.Context, *consume.Message, order) error {
			if fail {
				return everonce.NotDone(errors.New("no"))
			}
			return nil
		}), one)
		b.send("m-1")
		r.wants(everonce.Failed, everonce.Failed, everonce.Failed, everonce.Failed)
		b.letter()
		r.stop()
		fail = false
		if n, err := other.open().Replay(context.Background(), consume.Filter{}); n != 1 || err != nil {
			t.Fatalf("%s: %d, %v", kind, n, err)
		}
		other.runOn(store, specOf(nothing), nil).wants(everonce.Executed)
	}
}

// Headers that do not fit into a dead letter are left out, and named; headers that occur more than once are kept.
func TestDeadLettersOfUnusualMessages(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	store := memstore.New(nil)
	msg := b.message("m-1")
	msg.Header["Large"] = []string{strings.Repeat("x", 64_400)}
	msg.Header["Two"] = []string{"1", "2"}
	msg.Header["Nats-Expected-Stream"] = []string{b.queue.Stream}
	b.setAside(store, msg)
	l := b.open()
	all := list(t, l, consume.Filter{})
	if len(all) != 1 || !slices.Equal(all[0].Message.OmittedHeaders, []string{"Large", "Two"}) {
		t.Fatalf("%+v", all)
	}
	if raw := b.letter(); !slices.Equal(raw.Header["Two"], []string{"1", "2"}) || raw.Header["Large"] != nil {
		t.Errorf("%v", raw.Header["Two"])
	}
	if n, err := l.Replay(context.Background(), consume.Filter{}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	seen := make(chan []string, 1)
	b.runOn(store, specOf(func(_ context.Context, m *consume.Message, _ order) error { seen <- m.OmittedHeaders; return nil }), nil).wants(everonce.Executed)
	if odd := <-seen; !slices.Equal(odd, []string{"Large", "Two"}) {
		t.Error(odd)
	}
}

// If a body leaves no room for the headers of a dead letter, its message waits in the stream, and blocks no others.
func TestAMessageWithoutRoomForADeadLetter(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	spec := specOf(nothing)
	r := b.run(spec, one)
	msg := &nats.Msg{Subject: b.queue.Stream + ".placed", Data: make([]byte, b.conn.MaxPayload())}
	b.publish(msg)
	if v := r.decision(); v.Death.Reason != consume.NoKey {
		t.Fatal(v)
	}
	b.send("m-1")
	for v := r.decision(); v.Outcome != everonce.Executed; v = r.decision() {
	}
	if n := len(b.letters()); n != 0 {
		t.Errorf("%d dead letters", n)
	}
	b.eventually("the other one is acknowledged", func() bool { return b.consumer().NumAckPending == 1 })
}
