package rabbitonce_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
)

// oddHeaders are of every type that AMQP has, nested too.
func oddHeaders() amqp.Table {
	return amqp.Table{
		"text": "a", "bytes": []byte{0xff, 0x00}, "yes": true, "int8": int8(-1), "byte": byte(200), "int16": int16(-300), "int32": int32(7), "int64": int64(1) << 60,
		"uint16": uint16(40_000), "uint32": uint32(4_000_000_000),
		"float32": float32(1.5), "float64": 2.25, "decimal": amqp.Decimal{Scale: 2, Value: 314}, "nothing": nil, "time": time.Unix(1_700_000_000, 0),
		"table": amqp.Table{"deep": amqp.Table{"deeper": []any{"x", amqp.Table{"y": int32(1)}}}}, "list": []any{"a", int64(2), nil},
		"latin": "caf\xe9", // no UTF-8
	}
}

// Headers of all types, nested ones too, are handed to the handler as text where they have one, and are on a
// retried copy, a dead letter and a replayed one as they were sent.
func TestHeadersSurviveEveryCopy(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	seen := make(chan consume.Message, 10)
	r := b.run(specOf(func(_ context.Context, m *consume.Message, _ order) error {
		seen <- *m
		return everonce.NotDone(errClosed)
	}), nil)
	msg := message("m-1")
	msg.Headers = oddHeaders()
	msg.Type, msg.AppId, msg.CorrelationId, msg.ReplyTo, msg.Priority = "order.created", "shop", "c-1", "answers", 3
	msg.ContentEncoding = "identity"
	msg.Timestamp = time.Unix(1_600_000_000, 0)
	b.send(msg)
	b.whenBuried(r, 1)
	first, second := <-seen, <-seen
	wantText := map[string]string{
		"text": "a", "yes": "true", "int8": "-1", "byte": "200", "int16": "-300", "int32": "7", "int64": "1152921504606846976", "uint16": "40000", "uint32": "4000000000",
		"float32": "1.5", "float64": "2.25", "time": "2023-11-14T22:13:20Z",
	}
	if !reflect.DeepEqual(first.Headers, wantText) || !reflect.DeepEqual(second.Headers, wantText) || !reflect.DeepEqual(first.OmittedHeaders, []string{"bytes", "decimal", "latin", "list", "nothing", "table"}) {
		t.Errorf("the handler saw %v and %v, and then %v", first.Headers, first.OmittedHeaders, second.Headers)
	}
	if !first.First.Equal(msg.Timestamp) || first.ContentType != msg.ContentType || first.ContentEncoding != msg.ContentEncoding {
		t.Errorf("first sent at %v, as %q, %q", first.First, first.ContentType, first.ContentEncoding)
	}
	if n, err := b.letters().Replay(t.Context(), consume.Filter{}); n != 1 || err != nil {
		t.Fatalf("replayed %d, %v", n, err)
	}
	d := b.take(b.queue.Name)
	for name, want := range oddHeaders() {
		if !reflect.DeepEqual(d.Headers[name], want) {
			t.Errorf("%s is %#v, was %#v", name, d.Headers[name], want)
		}
	}
	if d.MessageId != "m-1" || d.Type != msg.Type || d.AppId != msg.AppId || d.CorrelationId != msg.CorrelationId || d.ReplyTo != msg.ReplyTo || d.Priority != msg.Priority ||
		!d.Timestamp.Equal(msg.Timestamp) || d.ContentType != msg.ContentType || d.ContentEncoding != msg.ContentEncoding || string(d.Body) != string(msg.Body) {
		t.Errorf("%+v", d)
	}
	for name := range d.Headers {
		if strings.HasPrefix(name, "x-death") || name == "x-everonce-reason" || name == "x-everonce-retries" {
			t.Errorf("the replayed copy has %s", name)
		}
	}
}

// A dead letter does not expire: copies do not have the message's own time to live.
func TestATimeToLiveIsNotOnCopies(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.run(specOf(func(context.Context, *consume.Message, order) error { return everonce.NotDone(errClosed) }), nil)
	msg := message("m-1")
	msg.Expiration = "60000"
	b.send(msg)
	r.wants(everonce.Failed, everonce.Failed, everonce.Failed, everonce.Failed)
	if d := b.letter(); d.Expiration != "" || d.Headers["x-everonce-reason"] != "exhausted" {
		t.Errorf("a dead letter that lives for %q ms: %v", d.Expiration, d.Headers)
	}
}

// CC and BCC send a message to further queues: a copy must not go there again.
func TestCopiesGoToNoOtherQueue(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	other, err := b.ch.QueueDeclare(b.queue.Name+".other", false, false, true, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := b.run(specOf(func(context.Context, *consume.Message, order) error { return everonce.NotDone(errClosed) }), nil)
	msg := message("m-1")
	msg.Headers = amqp.Table{"CC": []any{other.Name}}
	b.send(msg)
	b.whenBuried(r, 1)
	b.wantLength(other.Name, 1)
}

// Only the user that it names may publish a message with a user-id: its copies do not have one.
func TestAUserIDIsNotOnCopies(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	uri, err := amqp.ParseURI(b.url)
	if err != nil {
		t.Fatal(err)
	}
	r := b.run(specOf(func(context.Context, *consume.Message, order) error { return everonce.Permanent("no", nil, nil) }), nil)
	msg := message("m-1")
	msg.UserId = uri.Username
	b.send(msg)
	r.wants(everonce.Rejected)
	if d := b.letter(); d.UserId != "" || d.Headers["x-everonce-user-id"] != uri.Username {
		t.Errorf("%q, %v", d.UserId, d.Headers["x-everonce-user-id"])
	}
}

// All headers of a message must fit into one frame. If a copy's headers do not, the largest are left out, and named: a
// copy that the broker refuses would be retried for ever.
func TestHugeHeadersBlockNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.run(specOf(func(context.Context, *consume.Message, order) error {
		return everonce.Permanent("no", errors.New("no"), nil)
	}), nil)
	msg := message("m-1")
	msg.Headers = amqp.Table{"large": strings.Repeat("x", 100_000), "larger": strings.Repeat("y", 30_600), "small": "z"}
	b.send(msg)
	almost := message("m-2")
	almost.Headers = amqp.Table{"almost": strings.Repeat("x", 125<<10)}
	b.send(almost)
	r.wants(everonce.Rejected, everonce.Rejected)
	for seen := map[any]bool{}; len(seen) < 2; { // one that was sent again, as its connection was lost, comes twice
		d := b.letter()
		dropped, id := d.Headers["x-everonce-dropped"], d.Headers["x-everonce-message-id"]
		seen[id] = true
		switch id {
		case "m-1":
			if !reflect.DeepEqual(dropped, []any{"large"}) || d.Headers["small"] != "z" || len(d.Headers["larger"].(string)) != 30_600 {
				t.Errorf("left out: %v", dropped)
			}
		case "m-2":
			if dropped != nil {
				t.Errorf("left out: %v", dropped)
			}
		}
	}
}

// A header that did not fit on a copy is not a missing header: if the key or the fingerprint needs it, the message
// becomes a dead letter, and the handler sees it in OmittedHeaders.
func TestAHeaderThatHadNoRoomIsMissed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*consume.Spec[order])
		want   consume.Reason
	}{
		"the key": {func(s *consume.Spec[order]) {
			s.Key = consume.FirstOf(consume.Header("order-id"), consume.ProducerID())
		}, consume.NoKey},
		"a part of the key":       {func(s *consume.Spec[order]) { s.Key = consume.Composite("order", consume.Header("order-id")) }, consume.NoKey},
		"of the fingerprint":      {func(s *consume.Spec[order]) { s.Compare.Headers = []string{"order-id"} }, consume.Undecodable},
		"nothing of what matters": {func(*consume.Spec[order]) {}, consume.Exhausted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			odd := make(chan []string, 10)
			spec := specOf(func(_ context.Context, m *consume.Message, _ order) error {
				odd <- m.OmittedHeaders
				return everonce.NotDone(errClosed)
			})
			c.change(&spec)
			r := b.run(spec, nil)
			msg := message("m-1")
			msg.Headers = amqp.Table{"order-id": strings.Repeat("7", 60)}
			for i := range 10 { // they go first, and it after them
				msg.Headers[fmt.Sprintf("mid-%02d", i)] = strings.Repeat("x", 61)
			}
			for i := range 6820 {
				msg.Headers[fmt.Sprintf("tiny-%04d", i)] = int64(i)
			}
			b.send(msg)
			b.whenBuried(r, 1)
			if first := <-odd; len(first) != 0 {
				t.Errorf("the first delivery has no %v", first)
			}
			if c.want == consume.Exhausted {
				if second := <-odd; !slices.Contains(second, "order-id") {
					t.Errorf("the second delivery has no %v", second)
				}
			}
			if d := b.letter(); d.Headers["x-everonce-reason"] != string(c.want) {
				t.Errorf("the dead letter is %v (%v), want %v", d.Headers["x-everonce-reason"], d.Headers["x-everonce-detail"], c.want)
			}
		})
	}
}

// A detail is for people: one that is endless is cut.
func TestALongDetailIsCut(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	spec := specOf(func(context.Context, *consume.Message, order) error {
		return everonce.NotDone(errors.New("x" + strings.Repeat("ö", 100_000)))
	})
	spec.Retry.Limit = -1
	r := b.run(spec, nil)
	b.send(message("m-1"))
	r.wants(everonce.Failed)
	if detail, _ := b.letter().Headers["x-everonce-detail"].(string); len(detail) != 2047 || !strings.HasSuffix(detail, "ö") {
		t.Errorf("%d bytes", len(detail))
	}
}

// A producer's headers with the package's names are harmless.
func TestForgedHeaders(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	retries, deliveries := make(chan int, 10), make(chan int, 10)
	r := b.run(specOf(func(_ context.Context, m *consume.Message, _ order) error {
		retries <- m.Retries
		deliveries <- m.Deliveries
		return nil
	}), nil)
	for i, value := range []any{"many", int64(-5), int64(1) << 40, amqp.Table{}, 2.5} {
		msg := message(string(rune('a' + i)))
		msg.Headers = amqp.Table{"x-everonce-retries": value, "x-everonce-first": "yesterday", "x-death": "no list", "x-delivery-count": value}
		b.send(msg)
		r.wants(everonce.Executed)
		if n, d := <-retries, <-deliveries; n != 0 || d != 1 {
			t.Errorf("%v counts as %d retries and %d deliveries", value, n, d)
		}
	}
}

// Forged headers do not lead to copies that the broker, or the library, refuses: they would be retried for ever, and
// block a worker.
func TestForgedHeadersBlockNothing(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 129_500)
	for name, c := range map[string]struct {
		forged amqp.Table
		want   consume.Reason
	}{
		"a message ID":     {amqp.Table{"x-everonce-reason": "rejected", "x-everonce-message-id": strings.Repeat("m", 300)}, consume.NoKey},
		"a header":         {amqp.Table{"x-everonce-large": large}, consume.Exhausted},
		"a header of ours": {amqp.Table{"x-everonce-routing-key": large}, consume.Exhausted},
		"a routing header": {amqp.Table{"x-everonce-cc": large}, consume.Exhausted},
		"what was dropped": {amqp.Table{"x-everonce-dropped": []any{large}}, consume.Exhausted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			failure := errors.New("the bank is closed: " + strings.Repeat("y", 2000))
			b.run(specOf(func(context.Context, *consume.Message, order) error { return everonce.NotDone(failure) }), nil)
			msg := message("m-1")
			msg.Headers = c.forged
			b.send(msg)
			if d := b.letter(); d.Headers["x-everonce-reason"] != string(c.want) {
				t.Errorf("the dead letter is %v, want %v", d.Headers["x-everonce-reason"], c.want)
			}
		})
	}
}

// A producer that sends milliseconds, though AMQP's timestamp has seconds, gives a year that no text can have: the
// time is then unknown, and the dead letter can be written like any other.
func TestATimestampOfMillisecondsIsNoTime(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.run(specOf(func(_ context.Context, m *consume.Message, _ order) error {
		if !m.First.IsZero() && m.Retries == 0 {
			t.Errorf("first sent at %v", m.First)
		}
		return everonce.NotDone(errClosed)
	}), nil)
	msg := message("m-1")
	msg.Timestamp = time.Unix(time.Now().UnixMilli(), 0)
	b.send(msg)
	b.whenBuried(r, 1)
	found, err := b.letters().List(t.Context(), consume.Filter{})
	if err != nil || len(found) != 1 {
		t.Fatalf("%d dead letters, %v", len(found), err)
	}
	if _, err := json.Marshal(found[0]); err != nil || time.Since(found[0].First) > time.Hour {
		t.Errorf("first given back at %v: %v", found[0].First, err)
	}
}

// The address of a message is what the broker says, which may have checked that its producer may send there: a forged
// header of copies does not change it, also not on a copy.
func TestAForgedRoutingKeyIsNotTheSubject(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	subjects := make(chan string, 10)
	r := b.run(specOf(func(_ context.Context, m *consume.Message, _ order) error {
		subjects <- m.Subject
		return everonce.NotDone(errClosed)
	}), nil)
	exchange := b.queue.Name + ".events"
	if err := b.ch.ExchangeDeclare(exchange, "topic", false, true, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := b.ch.QueueBind(b.queue.Name, "#", exchange, false, nil); err != nil {
		t.Fatal(err)
	}
	msg := message("m-1")
	msg.Headers = amqp.Table{"x-everonce-routing-key": "tenant-b.order", "x-everonce-exchange": "others"}
	if err := b.ch.Publish(exchange, "tenant-a.order", true, false, msg); err != nil {
		t.Fatal(err)
	}
	b.whenBuried(r, 1)
	for range 4 {
		if subject := <-subjects; subject != "tenant-a.order" {
			t.Errorf("addressed to %q", subject)
		}
	}
	if d := b.letter(); d.Headers["x-everonce-routing-key"] != "tenant-a.order" || d.Headers["x-everonce-exchange"] != exchange {
		t.Errorf("the dead letter: %v", d.Headers)
	}
}
