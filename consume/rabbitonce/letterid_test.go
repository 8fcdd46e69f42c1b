package rabbitonce_test

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce/consume/rabbitonce"
)

// Each letter can be named, one without a key too, and one that the broker made in the same second as its twin: by an ID that
// stays, however often and from wherever it is looked at.
func TestALetterHasAnID(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.run(specOf(nothing), nil)
	b.send(message(""), message(""), amqp.Publishing{MessageId: "m", Body: []byte("no json")}, amqp.Publishing{MessageId: "m", Body: []byte("nor this")})
	b.whenBuried(r, 4)
	for _, event := range []string{"e-1", "e-2"} { // the broker moves them, and they differ in a header alone
		b.send(amqp.Publishing{Expiration: "1", Headers: amqp.Table{"event": event, "at": time.Unix(1, 0), "odd": amqp.Table{"at": event}}})
	}
	const n = 6
	b.wantLength(b.queue.DeadLetters, n)

	ids := map[string]rabbitonce.Letter{}
	for range 3 { // over and over, and each time by a connection of its own
		all, err := b.letters().List(t.Context(), rabbitonce.Filter{})
		if err != nil || len(all) != n {
			t.Fatalf("%d letters, %v; want %d", len(all), err, n)
		}
		for _, l := range all {
			ids[l.ID] = l
		}
	}
	if len(ids) != n {
		t.Fatalf("%d letters have %d IDs: %v", n, len(ids), ids)
	}
	l := b.letters()
	for id, letter := range ids {
		filter := rabbitonce.Filter{ID: id}
		if got, err := l.List(t.Context(), filter); err != nil || len(got) != 1 || got[0].Reason != letter.Reason {
			t.Errorf("%s: %+v, %v", id, got, err)
		}
		if discarded, err := l.Discard(t.Context(), filter); discarded != 1 || err != nil {
			t.Errorf("%s: discarded %d, %v", id, discarded, err)
		}
		if left, err := l.List(t.Context(), filter); len(left) != 0 || err != nil {
			t.Errorf("%s is still there: %v, %v", id, left, err)
		}
	}
	b.wantLength(b.queue.DeadLetters, 0)
}

// What a letter is called does not depend on where it is looked at.
func TestALettersIDIsTheSameInEveryTimeZone(t *testing.T) {
	t.Parallel()
	ids := map[string]bool{}
	for _, zone := range []*time.Location{time.UTC, time.FixedZone("there", 5*3600)} { // the client library reads times into that of its process
		at := time.Unix(1_700_000_000, 0).In(zone)
		ids[rabbitonce.LetterID(&amqp.Delivery{Timestamp: at, Headers: amqp.Table{
			"at": at, "inside": amqp.Table{"of": []any{amqp.Table{"at": at}}},
			"x-death": []any{amqp.Table{"queue": "orders", "reason": "expired", "time": at}},
		}})] = true
	}
	if len(ids) != 1 {
		t.Errorf("it has %d IDs", len(ids))
	}
}

// Two letters of one message that were buried at different times, or for different reasons, are two: to discard one leaves the other.
func TestLettersOfOneMessageAreTwo(t *testing.T) {
	t.Parallel()
	ids := map[string]bool{}
	for _, last := range []string{"2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"} {
		for _, reason := range []string{"rejected", "exhausted"} {
			ids[rabbitonce.LetterID(&amqp.Delivery{MessageId: "hash", Body: []byte("{}"), Headers: amqp.Table{
				"x-everonce-reason": reason, "x-everonce-last": last, "x-everonce-message-id": "m-1", "x-everonce-key-hash": "hash",
			}})] = true
		}
	}
	if len(ids) != 4 {
		t.Errorf("4 letters have %d IDs", len(ids))
	}
}
