package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// sent is an event as the producer sends it.
type sent struct {
	id   string
	body []byte
	// order is nil if the body is not an order.
	order *Order
}

// country is where all customers are.
const country = "NL"

// event is what is to become of it.
func (s *sent) event() Event {
	return Event{ID: s.id, Customer: s.order.Customer, Country: country, Cents: s.order.Cents, Class: classify(*s.order), Corrects: s.order.Corrects}
}

// valid reports whether it is to have a document.
func (s *sent) valid() bool { return s.order != nil && validate(s.id, *s.order) == nil }

// ordersOf makes so many events. Some are not valid, some have a customer who is not known yet, some correct an earlier
// one.
func ordersOf(n int) ([]sent, error) {
	all := make([]sent, n)
	for i := range all {
		o := &Order{Customer: fmt.Sprintf("customer-%d", i%7), Cents: int64(i)*37 + 1}
		switch {
		case i%25 == 7:
			o.Cents = 0
		case i%25 == 13:
			o.Customer = newcomer
		case i%10 == 4:
			o.Corrects = all[i-1].id
		}
		body, err := json.Marshal(o)
		if err != nil {
			return nil, err
		}
		all[i] = sent{id: fmt.Sprintf("order-%05d", i), body: body, order: o}
		if i%100 == 50 {
			all[i].body, all[i].order = []byte("no order"), nil
		}
	}
	return all, nil
}

// newcomer is a customer who is unknown until the dead letters are replayed.
const newcomer = "customer-new"

// withDuplicates is the order in which they are sent: every other event twice in a row, and every fifth once more,
// later.
func withDuplicates(all []sent) []sent {
	var stream []sent
	for i := range all {
		stream = append(stream, all[i])
		if i%2 == 0 {
			stream = append(stream, all[i])
		}
		if late := i - 40; late >= 0 && late%5 == 0 {
			stream = append(stream, all[late])
		}
	}
	return stream
}

// producer publishes to a queue. Messages that the broker did not confirm are sent again, which is one more source of
// duplicates.
type producer struct {
	url, queue string
	conn       *amqp.Connection
	ch         *amqp.Channel
	returns    chan amqp.Return

	published int // confirmed
	failures  int // tries after which something was to be sent again
}

// window is how many messages may wait for their confirmation.
const window = 16

// publish returns when the broker has all of them.
func (p *producer) publish(ctx context.Context, stream []sent) error {
	for len(stream) > 0 {
		n := min(window, len(stream))
		missing, err := p.try(ctx, stream[:n])
		if errors.Is(err, errUnroutable) {
			return err
		}
		if len(missing) == 0 {
			stream = stream[n:]
			continue
		}
		p.failures++
		stream = append(missing, stream[n:]...)
		p.hangUp()
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

var errUnroutable = errors.New("the queue is gone")

// try publishes, and returns what was not confirmed.
func (p *producer) try(ctx context.Context, batch []sent) (missing []sent, err error) {
	if err := p.connect(); err != nil {
		return batch, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	confirms := make([]*amqp.DeferredConfirmation, len(batch))
	for i, s := range batch {
		confirms[i], err = p.ch.PublishWithDeferredConfirmWithContext(ctx, "", p.queue, true, false, amqp.Publishing{
			MessageId: s.id, Body: s.body, ContentType: "application/json", DeliveryMode: amqp.Persistent, Timestamp: time.Now(),
		})
		if err != nil {
			break
		}
	}
	for i, c := range confirms {
		confirmed := false
		if c != nil {
			confirmed, _ = c.WaitContext(ctx) //nolint:errcheck // not confirmed
		}
		if confirmed {
			p.published++
		} else {
			missing = append(missing, batch[i])
		}
	}
	select {
	case _, ok := <-p.returns: // a message that was returned is confirmed all the same
		if ok {
			return missing, errUnroutable
		}
	default:
	}
	return missing, err
}

func (p *producer) connect() (err error) {
	if p.ch != nil && !p.ch.IsClosed() {
		return nil
	}
	if p.conn, err = amqp.Dial(p.url); err != nil {
		return err
	}
	if p.ch, err = p.conn.Channel(); err != nil {
		return err
	}
	p.returns = p.ch.NotifyReturn(make(chan amqp.Return, window))
	return p.ch.Confirm(false)
}

func (p *producer) hangUp() {
	if p.conn != nil {
		p.conn.CloseDeadline(time.Now().Add(time.Second)) //nolint:errcheck // it may be lost already, and a broker that is short of memory answers nothing
	}
	p.conn, p.ch = nil, nil
}

// pause waits, unless ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
