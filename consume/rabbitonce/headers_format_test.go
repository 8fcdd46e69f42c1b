package rabbitonce_test

import (
	"reflect"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
)

// Messages that wait for a retry, and dead letters, may have been written by any version, and every version reads
// them. None of these headers ever changes.
func TestFormatOfCopies(t *testing.T) {
	t.Parallel()
	first := time.Date(2026, time.March, 4, 5, 6, 7, 0, time.UTC)
	sent := amqp.Delivery{
		MessageId: "m-1", ContentType: "application/json", Exchange: "shop", RoutingKey: "order.paid", UserId: "shop", Timestamp: first,
		Headers: amqp.Table{"tenant": "acme", "CC": []any{"audit"}, "x-delivery-count": int64(2)}, Body: []byte("{}"),
	}
	letter := &consume.Death{
		Reason: consume.Exhausted, Detail: "no funds", Consumer: "billing", Source: "orders", KeyHash: "hash", Attempts: 4,
		First: first, Last: first.Add(90*time.Second + 714*time.Microsecond),
	}
	again, dead := rabbitonce.Copies(&sent, "orders", 3, letter)
	common := func(more amqp.Table) amqp.Table {
		all := amqp.Table{
			"tenant": "acme", "x-everonce-cc": []any{"audit"}, "x-everonce-user-id": "shop", "x-everonce-routing-key": "order.paid", "x-everonce-exchange": "shop",
			"x-everonce-first": "2026-03-04T05:06:07Z", "x-everonce-queue": "orders",
		}
		for name, value := range more {
			all[name] = value
		}
		return all
	}
	wantAgain := amqp.Publishing{
		MessageId: "m-1", ContentType: "application/json", DeliveryMode: amqp.Persistent, Timestamp: first, Body: []byte("{}"),
		Headers: common(amqp.Table{"x-everonce-retries": int64(3)}),
	}
	wantDead := wantAgain
	wantDead.MessageId = "hash"
	wantDead.Headers = common(amqp.Table{
		"x-everonce-reason": "exhausted", "x-everonce-detail": "no funds", "x-everonce-attempts": int64(4), "x-everonce-last": "2026-03-04T05:07:37.000714Z",
		"x-everonce-consumer": "billing", "x-everonce-key-hash": "hash", "x-everonce-message-id": "m-1",
	})
	if !reflect.DeepEqual(again, wantAgain) {
		t.Errorf("what comes again is\n%+v\nand was\n%+v", again, wantAgain)
	}
	if !reflect.DeepEqual(dead, wantDead) {
		t.Errorf("a dead letter is\n%+v\nand was\n%+v", dead, wantDead)
	}

	// Of one that has no time, what is noted is when it was first given back, be that counted or not.
	untold, _ := rabbitonce.Copies(&amqp.Delivery{MessageId: "m-1", RoutingKey: "orders"}, "orders", 0, letter)
	if at := untold.Headers["x-everonce-first"]; at != "2026-03-04T05:07:37.000714Z" || untold.Headers["x-everonce-retries"] != nil {
		t.Errorf("what comes again, uncounted, is %+v", untold)
	}

	message := func(retries int) *consume.Message {
		return &consume.Message{
			ID: "m-1", Source: "orders", Subject: "order.paid", ContentType: "application/json", Body: []byte("{}"), Headers: map[string]string{"tenant": "acme"},
			Deliveries: 1, Retries: retries, First: first, Time: first,
		}
	}
	came := func(p amqp.Publishing, more amqp.Table) *amqp.Delivery {
		for name, value := range more {
			p.Headers[name] = value
		}
		return &amqp.Delivery{Headers: p.Headers, MessageId: p.MessageId, ContentType: p.ContentType, RoutingKey: "orders", Timestamp: p.Timestamp, Body: p.Body}
	}
	if got := rabbitonce.MessageOf(came(wantAgain, nil), "orders"); !reflect.DeepEqual(got, message(3)) {
		t.Errorf("what comes again is read as\n%+v\nwant\n%+v", got, message(3))
	}
	got := rabbitonce.LetterOf(came(wantDead, amqp.Table{"x-everonce-replays": int64(2)}), "dead")
	want := consume.DeadLetter{ID: "b6611d421351265b", Death: *letter, Message: message(0), Queue: "orders", Replays: 2}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("a dead letter is read as\n%+v %+v\nwant\n%+v %+v", got, got.Message, want, want.Message)
	}
}
