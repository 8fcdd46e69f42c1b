package main

import (
	"context"
	"crypto/rand"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce/internal/testserver"
)

const soon = 3 * time.Minute

// Orders are sent three times: each has one mail. A message is tried again while the service cannot be reached; an
// unknown customer, and a mail that may or may not have been sent, are dead letters at once.
func TestRun(t *testing.T) {
	redis, broker := testserver.URL(t, "redis"), testserver.URL(t, "rabbitmq")
	conn, err := amqp.Dial(broker)
	if err != nil {
		t.Fatal(err)
	}
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	name := strings.ToLower(rand.Text())
	queue := "mails." + name
	t.Cleanup(func() {
		for _, suffix := range []string{"", ".dead", ".retry.1s", ".retry.5s", ".retry.30s", ".retry.2m", ".retry.10m"} {
			if _, err := ch.QueueDelete(queue+suffix, false, false, false); err != nil {
				t.Error(err)
			}
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	// The queue exists before the consumer does, which uses it unchanged.
	quorum := amqp.Table{
		"x-queue-type": "quorum", "x-delivery-limit": int64(20), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue + ".dead",
		"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
	}
	if _, err := ch.QueueDeclare(queue, true, false, false, false, quorum); err != nil {
		t.Fatal(err)
	}
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		for _, id := range []string{name + "-1", name + "-2", name + "-unknown", name + "-away", name + "-timeout"} { // the records are in a Redis that others use too
			if i > 0 && id == name+"-away" {
				continue // what comes again is a retry
			}
			msg := amqp.Publishing{MessageId: id, Body: []byte(`{"id":"` + id + `","customer":"` + id + `"}`)}
			confirm, err := ch.PublishWithDeferredConfirm("", queue, true, false, msg)
			if err != nil {
				t.Fatal(err)
			}
			if !confirm.Wait() {
				t.Fatal("the broker has not taken the message")
			}
		}
	}

	sent := make(chan string, 100)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	done := make(chan error, 1)
	var tried atomic.Bool
	go func() {
		done <- run(ctx, redis, broker, queue, func(_ context.Context, to, reference string) error {
			switch strings.TrimPrefix(to, name) {
			case "-unknown":
				return errNoSuchCustomer
			case "-timeout":
				return context.DeadlineExceeded
			case "-away":
				if !tried.Swap(true) {
					return errNotReached
				}
			}
			sent <- to + " " + reference
			return nil
		})
	}()
	mails := map[string]bool{}
	for len(mails) < 3 {
		select {
		case mail := <-sent:
			mails[mail] = true
		case err := <-done:
			t.Fatalf("it ended: %v", err)
		case <-time.After(soon):
			t.Fatal("there are no mails")
		}
	}
	letters, err := ch.Consume(queue+".dead", "", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[any]any{}
	for len(reasons) < 2 {
		select {
		case letter := <-letters:
			reasons[letter.Headers["x-everonce-message-id"]] = letter.Headers["x-everonce-reason"]
		case <-time.After(soon):
			t.Fatalf("the dead letters are %v", reasons)
		}
	}
	if want := map[any]any{name + "-unknown": "rejected", name + "-timeout": "unknown"}; !maps.Equal(reasons, want) {
		t.Errorf("the dead letters are %v, want %v", reasons, want)
	}
	for deadline := time.Now().Add(soon); ; {
		q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		if q.Messages == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the queue is not empty")
		}
	}
	end()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if len(sent) != 0 {
		t.Errorf("%d mails more than three", len(sent))
	}
}
