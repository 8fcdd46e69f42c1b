package rabbitonce_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
)

// nested is a table with so many others in it.
func nested(depth int) amqp.Table {
	table := amqp.Table{"x": "y"}
	for range depth {
		table = amqp.Table{"x": table}
	}
	return table
}

// One message whose headers the client library does not read, though the broker takes them, ends no connection: it is handled, and so are those
// around it, all at their first delivery. What can be read of it is there, on a retry and on a dead letter too.
func TestAMessageThatTheLibraryDoesNotReadHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.declare()
	wide := amqp.Table{}
	for i := range 9000 {
		wide[strconv.Itoa(i)] = nil
	}
	sent := []amqp.Publishing{message("a")}
	for name, headers := range map[string]amqp.Table{
		"deep":     {"tenant": "shop", "odd": nested(32)},
		"just":     {"tenant": "shop", "odd": nested(31)}, // which is read
		"array":    {"tenant": "shop", "odd": make([]any, 8193)},
		"wide":     {"tenant": "shop", "odd": wide},
		"headers":  wide,
		"our-own":  {"tenant": "shop", "x-everonce-retries": nested(40), "x-everonce-reason": nested(40), "x-death": nested(40)},
		"and-ours": {"tenant": "shop", "x-everonce-dropped": make([]any, 8193)},
	} {
		msg := message(name)
		msg.Headers = headers
		sent = append(sent, msg, message("behind "+name))
	}
	b.send(sent...)
	again, reconnected := connections(nil)
	r := b.run(specOf(func(_ context.Context, m *consume.Message, _ order) error {
		if m.Deliveries != 1 && m.Retries == 0 {
			return everonce.Permanent("again", fmt.Errorf("delivery %d", m.Deliveries), nil)
		}
		if m.ID == "deep" || m.ID == "just" {
			return everonce.NotDone(errors.New("comes again, and is buried then"))
		}
		return nil
	}), again)
	for range len(sent) + 2*3 { // with the retries of two
		if v := r.verdict(); v.Outcome != everonce.Executed && v.Outcome != everonce.Failed {
			t.Errorf("%v, %v: %v", v.Outcome, v.Disposition, v.Err)
		}
	}
	r.stop()
	if len(reconnected) > 0 {
		t.Errorf("the connection was lost %d times", len(reconnected))
	}
	for range 2 {
		letter := b.letter()
		want := amqp.Table(nil)
		if letter.Headers["x-everonce-message-id"] == "just" {
			want = nested(31)
		}
		if got, _ := letter.Headers["odd"].(amqp.Table); letter.Headers["tenant"] != "shop" || !reflect.DeepEqual(got, want) {
			t.Errorf("the letter of %v has %v", letter.Headers["x-everonce-message-id"], letter.Headers)
		}
	}
}

// Such a letter is listed, replayed and discarded as any other.
func TestALetterThatTheLibraryDoesNotReadIsListed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.declare()
	deep := letterFor(b.queue.Name, "m-0")
	deep.Headers["odd"] = nested(40)
	b.sendTo(b.queue.DeadLetters, deep, letterFor(b.queue.Name, "m-1"), deep)
	letters, err := b.letters().List(t.Context(), rabbitonce.Filter{})
	if err != nil || len(letters) != 3 || !reflect.DeepEqual(letters[0].Message.Odd, []string{"odd"}) || letters[0].Message.ID != "m-0" {
		t.Fatalf("%v, %v", letters, err)
	}
	if n, err := b.letters().Replay(t.Context(), rabbitonce.Filter{ID: letters[0].ID, Limit: 1}); n != 1 || err != nil {
		t.Errorf("%d are replayed, %v", n, err)
	}
	if n, err := b.letters().Discard(t.Context(), rabbitonce.Filter{ID: letters[0].ID}); n != 1 || err != nil {
		t.Errorf("%d are discarded, %v", n, err)
	}
	b.wantLength(b.queue.DeadLetters, 1)
	b.wantLength(b.queue.Name, 1)
}
