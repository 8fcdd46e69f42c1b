package consume_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/store/memstore"
)

// Message handlers: keys.

// keyed returns how often each of the messages took effect together, under a key.
func keyed(t *testing.T, key consume.Key, ms ...consume.Message) int {
	t.Helper()
	n := 0
	r := rigged(t, func(context.Context, *consume.Message, order) error { n++; return nil }, func(s *consume.Spec[order]) { s.Key = key })
	for _, m := range ms {
		if v := r.c.Handle(t.Context(), &m); v.Disposition != consume.Ack {
			t.Errorf("%v, %v", v.Disposition, v.Err)
		}
	}
	return n
}

func TestPracticeKeyOfTheProducer(t *testing.T) {
	body := []byte(`{"ID":"7"}`)
	if n := keyed(t, consume.ProducerID(), consume.Message{ID: "a", Body: body}, consume.Message{ID: "a", BrokerID: "9", Body: body}, consume.Message{ID: "b", Body: body}); n != 2 {
		t.Errorf("%d effects of two orders, want 2", n)
	}
}

func TestPracticeContentHashMergesIdenticalOrders(t *testing.T) {
	body := []byte(`{"ID":"7"}`)
	if n := keyed(t, consume.ContentHash(), consume.Message{ID: "a", Body: body}, consume.Message{ID: "b", Body: body}); n != 1 {
		t.Errorf("%d effects: two real orders with the same content are one by their hash, as its doc says", n)
	}
}

func TestPracticeBusinessCompositeWithTheProducersID(t *testing.T) {
	m := func(id string) consume.Message { return consume.Message{ID: id, Body: []byte(`{"ID":"12345"}`)} }
	alone := consume.Composite("Order", consume.JSONPointer("/ID"))
	best := consume.Composite("Order", consume.JSONPointer("/ID"), consume.ProducerID())
	first, changed := m("msg-1"), m("msg-2")
	if n := keyed(t, alone, first, changed); n != 1 {
		t.Errorf("%d effects by the business key alone, want 1: what the producer means to happen twice is merged", n)
	}
	if n := keyed(t, best, first, changed, first); n != 2 {
		t.Errorf("%d effects, want 2", n)
	}
	if k, err := best(&first); err != nil || k != "Order:12345:msg-1" {
		t.Errorf("%q, %v", k, err)
	}
}

// The broker's ID changes when a producer sends again, and when a dead letter is moved back: both take effect twice.
func TestPracticeBrokersIDIsDiscouraged(t *testing.T) {
	body := []byte(`{"ID":"7"}`)
	sent := consume.Message{ID: "a", BrokerID: "1", Body: body}
	redelivered, resent, redriven := sent, sent, sent
	redelivered.Redelivered, resent.BrokerID, redriven.BrokerID = true, "2", "3"
	if n := keyed(t, consume.BrokerID(), sent, redelivered); n != 1 {
		t.Errorf("%d effects of a redelivery, want 1", n)
	}
	if n := keyed(t, consume.BrokerID(), sent, redelivered, resent, redriven); n != 3 {
		t.Errorf("%d effects: its doc says that a resend and a redrive are other messages by it", n)
	}
	if n := keyed(t, consume.FirstOf(consume.ProducerID(), consume.BrokerID()), sent, redelivered, resent, redriven); n != 1 {
		t.Errorf("%d effects by the producer's ID, want 1", n)
	}
}

// Message handlers: how long.

// The window is the longest redelivery, the dwell among the dead letters included.
func TestPracticeLifetimeShorterThanRedeliveryIsRefused(t *testing.T) {
	recv, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	const day = 24 * time.Hour
	for _, tc := range []struct {
		lifetime everonce.Lifetime
		window   time.Duration
		fits     bool
	}{
		{everonce.Lifetime{}, 0, true},          // the defaults: 7 days of redelivery
		{everonce.Lifetime{}, 14 * day, true},   // 7 days in the queue, and 7 among the dead letters
		{everonce.Lifetime{}, 15 * day, false},  // a day longer
		{everonce.ForWeb(), 0, false},           // two days, for a queue
		{everonce.ForFinance(), 90 * day, true}, // 30 to 90 days in finance
		{everonce.ForFinance(), 400 * day, false},
	} {
		_, err := consume.New(recv, consume.Spec[order]{Consumer: "billing", Key: consume.ProducerID(), Handle: done, Lifetime: tc.lifetime, Window: tc.window})
		if fits := err == nil; fits != tc.fits || err != nil && !errors.Is(err, everonce.ErrInvalidArgument) {
			t.Errorf("lifetime %v, window %v: %v", tc.lifetime, tc.window, err)
		}
	}
}

// Seven days are usual, and ninety in finance: to the last of them a duplicate is one.
func TestPracticeLifetimeOfAWeekAndOfAQuarter(t *testing.T) {
	const day = 24 * time.Hour
	for lifetime, last := range map[everonce.Lifetime]time.Duration{{}: 14 * day, everonce.ForFinance(): 365 * day} {
		synctest.Test(t, func(t *testing.T) {
			n := 0
			r := rigged(t, func(context.Context, *consume.Message, order) error { n++; return nil }, func(s *consume.Spec[order]) { s.Lifetime = lifetime })
			start := time.Now()
			for _, at := range []time.Duration{0, 5 * time.Minute, day, 7 * day, last / 2, last - time.Second} {
				time.Sleep(at - time.Since(start))
				if v := r.c.Handle(t.Context(), first()); v.Disposition != consume.Ack || n != 1 {
					t.Errorf("after %v: %v, handled %d times", at, v.Outcome, n)
				}
			}
		})
	}
}

// A broker's own deduplication is a supplement: SQS FIFO forgets after five minutes, NATS after two. A producer that
// repeats itself after six minutes is passed on by both, and not handled again.
func TestPracticeBrokersWindowIsNotEnough(t *testing.T) {
	inBothModes(t, nil, func(t *testing.T, p *practised) {
		p.handle(t, "m-1")
		time.Sleep(6 * time.Minute)
		if v := p.handle(t, "m-1"); v.Outcome != everonce.Replayed {
			t.Errorf("%v, want replayed", v.Outcome)
		}
		p.wantBooked(t, "m-1", 1)
	})
}
