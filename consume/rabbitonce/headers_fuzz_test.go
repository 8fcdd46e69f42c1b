package rabbitonce

import (
	"maps"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/internal/copies"
)

// FuzzHeaders reads messages with headers of any kind, as any producer may send them, with the package's and the
// broker's among them. A handler sees well-formed headers; on a retry, on a dead letter and on its replay they are as
// sent; and headers that did not fit are named.
func FuzzHeaders(f *testing.F) {
	for i, name := range slices.Sorted(maps.Keys(ours)) {
		f.Add("m-1", "shop", name, "x", byte(i), int64(i), "CC", "other", byte(1), int64(1)<<40, uint16(1000))
	}
	f.Add("m-1", "", "x-delivery-count", "", byte(7), int64(math.MaxInt64), "x-everonce-retries", "", byte(7), int64(-1), uint16(0))
	f.Add("m-1", "", "x-delivery-count", "", byte(7), int64(-9), "x-death", "orders", byte(10), int64(3), uint16(0))
	f.Add("", "", "x-everonce-message-id", "forged", byte(0), int64(0), "x-everonce-key-hash", "forged", byte(0), int64(0), uint16(5))
	f.Add("m-1", "", "x-everonce-reason", "exhausted", byte(0), int64(0), "x-everonce-dropped", "name", byte(9), int64(0), uint16(300))
	f.Add("m-1", "", "x-everonce-first", "2026-01-01T00:00:00Z", byte(0), int64(0), "latin", "caf\xe9", byte(0), int64(0), uint16(9))
	f.Fuzz(func(t *testing.T, id, exchange, name1, text1 string, kind1 byte, n1 int64, name2, text2 string, kind2 byte, n2 int64, room uint16) {
		const queue, retries = "orders", 3
		id = id[:min(len(id), maxMessageID)]
		now := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
		d := &amqp.Delivery{
			MessageId: id, Exchange: exchange, RoutingKey: "eu", Body: []byte("body"), Timestamp: time.Unix(n1, 0),
			Headers: amqp.Table{name2: header(kind2, text2, n2), name1: header(kind1, text1, n1)},
		}
		m := messageOf(d, queue)
		wellFormed(t, m)
		visible := func(of *consume.Message) map[string]string {
			left := maps.Clone(of.Headers)
			delete(left, "CC") // kept, under a name of ours
			delete(left, "BCC")
			return left
		}
		keys := []consume.Key{consume.ProducerID(), consume.CloudEvent(), consume.ContentHash()}
		for _, name := range []string{name1, name2} {
			if _, routes := routingHeaders[name]; name != "" && !routes {
				keys = append(keys, consume.Header(name), consume.FirstOf(consume.Header(name), consume.ProducerID()))
			}
		}
		keyed := func(what string, got *consume.Message, lost bool) {
			t.Helper()
			for i, key := range keys {
				want, wantErr := key(m)
				if k, err := key(got); (k != want || (err == nil) != (wantErr == nil)) && (!lost || err == nil) {
					t.Errorf("%s has the key %q, %v, by the way %d; it was %q, %v", what, k, err, i, want, wantErr)
				}
			}
		}

		same := func(what string, got *consume.Message) {
			t.Helper()
			wellFormed(t, got)
			if got.ID != m.ID || string(got.Body) != "body" || !maps.Equal(visible(got), visible(m)) {
				t.Errorf("%s is %+v, was %+v", what, got, m)
			}
			keyed(what, got, false)
		}

		again := retryCopy(d, m, queue, retries, now)
		retried := messageOf(delivered(&again), queue)
		same("the retried copy", retried)
		if retried.Retries != retries || retried.Source != queue {
			t.Errorf("the copy has %d retries, of %q", retried.Retries, retried.Source)
		}
		if want := m.First; d.Headers[copies.First] == nil && !retried.First.Equal(want) && (!want.IsZero() || !retried.First.Equal(now)) {
			t.Errorf("first sent at %v, on the copy %v", want, retried.First)
		}

		letter := deadLetter(d, m, queue, &consume.Death{Reason: consume.Exhausted, Detail: text1, Last: now, Attempts: 4})
		buried := delivered(&letter)
		l := deadLetterOf(buried, queue)
		same("the dead letter", l.Message)
		if l.KeyHash != "" || l.Reason != consume.Exhausted || l.Attempts != 4 || !l.Last.Equal(now) || l.Queue != queue {
			t.Errorf("the dead letter is %+v", l.Death)
		}
		if other := deadLetterOf(buried, queue); other.ID != l.ID {
			t.Errorf("a dead letter has the IDs %s and %s", l.ID, other.ID)
		}
		replay := replayCopy(buried)
		replayed := messageOf(delivered(&replay), queue)
		same("the replayed copy", replayed)
		if replayed.Retries != 0 {
			t.Errorf("the replayed copy has %d retries", replayed.Retries)
		}

		fit(again.Headers, int(room))
		left := messageOf(delivered(&again), queue)
		wellFormed(t, left)
		keyed("the copy without room", left, true)
		for name := range visible(m) {
			if _, there := left.Headers[name]; !there && !slices.Contains(left.OmittedHeaders, name) && name != "" {
				t.Errorf("%q did not fit, and is not in OmittedHeaders", name)
			}
		}
	})
}

// wellFormed checks what a handler relies on.
func wellFormed(t *testing.T, m *consume.Message) {
	t.Helper()
	if m.Retries < 0 || m.Deliveries < 0 || m.First.Location() != time.UTC || !m.First.IsZero() && (m.First.Year() < 1 || m.First.Year() > 9999) {
		t.Errorf("%d retries, %d deliveries, first sent at %v", m.Retries, m.Deliveries, m.First)
	}
	for name, text := range m.Headers {
		if copies.Ours(name) || brokerHeaders[name] || !utf8.ValidString(text) {
			t.Errorf("a handler sees %q: %q", name, text)
		}
	}
	if !slices.IsSorted(m.OmittedHeaders) || !reflect.DeepEqual(m.OmittedHeaders, slices.Compact(slices.Clone(m.OmittedHeaders))) {
		t.Errorf("odd are %q", m.OmittedHeaders)
	}
}

// header is a value of one of the types that AMQP has.
func header(kind byte, text string, n int64) any {
	return []any{
		text, []byte(text), n > 0, float32(n), float64(n), byte(n), int32(n), n, time.Unix(n, 0),
		[]any{text, n},
		[]any{amqp.Table{"queue": text, "reason": text, "time": time.Unix(n, 0), "count": n}},
		amqp.Table{text: n},
		nil, int8(n), uint16(n),
		amqp.Decimal{Value: int32(n)},
	}[kind%16]
}

// delivered is a copy as it comes from its queue.
func delivered(msg *amqp.Publishing) *amqp.Delivery {
	return &amqp.Delivery{
		Headers: maps.Clone(msg.Headers), Body: msg.Body, MessageId: msg.MessageId, Timestamp: msg.Timestamp, ContentType: msg.ContentType,
		ContentEncoding: msg.ContentEncoding, RoutingKey: "orders", Redelivered: true,
	}
}
