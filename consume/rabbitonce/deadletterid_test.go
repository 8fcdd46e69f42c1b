package rabbitonce_test

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
)

// Each dead letter has an ID, also without a key, and also if the broker made it in the same second as an equal one:
// the ID does not change, however often and from wherever it is read.
func TestADeadLetterHasAnID(t *testing.T) {
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

	ids := map[string]consume.DeadLetter{}
	for range 3 { // repeatedly, each time on a new connection
		all, err := b.letters().List(t.Context(), consume.Filter{})
		if err != nil || len(all) != n {
			t.Fatalf("%d dead letters, %v; want %d", len(all), err, n)
		}
		for _, l := range all {
			ids[l.ID] = l
		}
	}
	if len(ids) != n {
		t.Fatalf("%d dead letters have %d IDs: %v", n, len(ids), ids)
	}
	l := b.letters()
	for id, letter := range ids {
		filter := consume.Filter{ID: id}
		if got, err := l.List(t.Context(), filter); err != nil || len(got) != 1 || got[0].Reason != letter.Reason {
			t.Errorf("%s: %+v, %v", id, got, err)
		}
		if discarded, err := l.Discard(t.Context(), filter); discarded != 1 || err != nil {
			t.Errorf("%s: discarded %d, %v", id, discarded, err)
		}
		if left, err := l.List(t.Context(), filter); len(left) != 0 || err != nil {
			t.Errorf("%s was not removed: %v, %v", id, left, err)
		}
	}
	b.wantLength(b.queue.DeadLetters, 0)
}

// The ID of a dead letter does not depend on the reader's time zone.
func TestADeadLetterIDIsTheSameInEveryTimeZone(t *testing.T) {
	t.Parallel()
	ids := map[string]bool{}
	for _, zone := range []*time.Location{time.UTC, time.FixedZone("there", 5*3600)} { // the client library reads times in the zone of its process
		at := time.Unix(1_700_000_000, 0).In(zone)
		ids[rabbitonce.DeadLetterID(&amqp.Delivery{Timestamp: at, Headers: amqp.Table{
			"at": at, "inside": amqp.Table{"of": []any{amqp.Table{"at": at}}},
			"x-death": []any{amqp.Table{"queue": "orders", "reason": "expired", "time": at}},
		}})] = true
	}
	if len(ids) != 1 {
		t.Errorf("it has %d IDs", len(ids))
	}
}

// Dead letters of one message that was set aside at different times, or for different reasons, have different IDs:
// discarding one leaves the other.
func TestDeadLettersOfOneMessageAreTwo(t *testing.T) {
	t.Parallel()
	ids := map[string]bool{}
	for _, last := range []string{"2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"} {
		for _, reason := range []string{"rejected", "exhausted"} {
			ids[rabbitonce.DeadLetterID(&amqp.Delivery{MessageId: "hash", Body: []byte("{}"), Headers: amqp.Table{
				"x-everonce-reason": reason, "x-everonce-last": last, "x-everonce-message-id": "m-1", "x-everonce-key-hash": "hash",
			}})] = true
		}
	}
	if len(ids) != 4 {
		t.Errorf("4 dead letters have %d IDs", len(ids))
	}
}

// An ID that somebody has noted names its letter for ever: what is hashed is the same in every version, of the client library too.
func TestFormatOfDeadLetterIDs(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, time.March, 4, 5, 6, 7, 0, time.UTC)
	for name, test := range map[string]struct {
		letter amqp.Delivery
		id     string
	}{
		"Empty": {id: "85bfe6df63f614f1"},
		"Ours":  {letter: fullLetter(at), id: "0a8a33ac85ee2221"},
		"TheBrokers": {letter: amqp.Delivery{MessageId: "m-1", Timestamp: at, Body: []byte("{}"), Headers: amqp.Table{
			"tenant": "acme", "x-death": []any{amqp.Table{"queue": "orders", "reason": "expired", "time": at, "count": int64(2)}},
		}}, id: "56ccf2742b7db3da"},
	} {
		if id := rabbitonce.DeadLetterID(&test.letter); id != test.id {
			t.Errorf("%s: the ID is %s, and was %s", name, id, test.id)
		}
	}
}

// fullLetter is a letter of ours with everything that one can have.
func fullLetter(at time.Time) amqp.Delivery {
	return amqp.Delivery{
		MessageId: "hash", ContentType: "application/json", ContentEncoding: "utf-8", Priority: 3, CorrelationId: "c-1", ReplyTo: "answers", Timestamp: at,
		Type: "order", AppId: "shop", Body: []byte("{}"),
		Headers: amqp.Table{
			"x-everonce-reason": "exhausted", "x-everonce-detail": "no funds", "x-everonce-consumer": "billing", "x-everonce-queue": "orders", "x-everonce-key-hash": "hash",
			"x-everonce-attempts": int64(4), "x-everonce-first": "2026-03-04T05:06:07Z", "x-everonce-last": "2026-03-04T05:07:37.000714Z", "x-everonce-message-id": "m-1",
			"text": "\u00e4", "bytes": []byte{0xff}, "yes": true, "float": float32(0.1), "double": 0.1, "decimal": amqp.Decimal{Scale: 2, Value: 1999}, "time": at, "nothing": nil,
			"integers": []any{byte(1), int8(-1), int16(-2), uint16(2), int32(-3), uint32(3), int64(-4)}, "table": amqp.Table{"b": "2", "a": "1"},
		},
	}
}

// Dead letters that differ in anything have different IDs, so that the right one is discarded.
func TestDifferentDeadLettersHaveDifferentIDs(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, time.March, 4, 5, 6, 7, 0, time.UTC)
	ids := map[string]string{}
	add := func(name string, d amqp.Delivery) {
		id := rabbitonce.DeadLetterID(&d)
		if other, there := ids[id]; there {
			t.Errorf("%s has the ID of %s", name, other)
		}
		ids[id] = name
	}
	add("the letter", fullLetter(at))
	for name, change := range map[string]func(*amqp.Delivery){
		"ContentType":     func(d *amqp.Delivery) { d.ContentType = "" },
		"ContentEncoding": func(d *amqp.Delivery) { d.ContentEncoding = "" },
		"Priority":        func(d *amqp.Delivery) { d.Priority = 0 },
		"CorrelationId":   func(d *amqp.Delivery) { d.CorrelationId = "" },
		"ReplyTo":         func(d *amqp.Delivery) { d.ReplyTo = "" },
		"Timestamp":       func(d *amqp.Delivery) { d.Timestamp = at.Add(time.Second) },
		"Type":            func(d *amqp.Delivery) { d.Type = "" },
		"AppId":           func(d *amqp.Delivery) { d.AppId = "" },
		"Body":            func(d *amqp.Delivery) { d.Body = []byte("{ }") },
		"UserId":          func(d *amqp.Delivery) { d.UserId = "shop" },
	} {
		d := fullLetter(at)
		change(&d)
		add(name, d)
	}
	for name := range fullLetter(at).Headers {
		d := fullLetter(at)
		delete(d.Headers, name)
		add("one without "+name, d)
	}
	for name, value := range map[string]any{
		"nothing": nil, "an empty text": "", "a text": "1", "bytes": []byte("1"), "an integer": int64(1), "a float": float32(1), "a double": 1.0, "a decimal": amqp.Decimal{Value: 1},
		"another decimal": amqp.Decimal{Value: 1, Scale: 1}, "true": true, "false": false, "a time": at, "a list": []any{"1"}, "an empty list": []any{}, "a longer list": []any{"1", "1"},
		"a table": amqp.Table{"1": "1"}, "an empty table": amqp.Table{}, "a list of a list": []any{[]any{"1"}}, "what is spelled so": "S1:1",
	} {
		add(name, amqp.Delivery{Headers: amqp.Table{"it": value}})
	}
	add("a header's name", amqp.Delivery{Headers: amqp.Table{"it1": ""}})
	add("two properties", amqp.Delivery{Type: "ab", AppId: "c"})
	add("the same text in both", amqp.Delivery{Type: "a", AppId: "bc"})
}
