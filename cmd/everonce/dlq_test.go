package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
	"github.com/everonce/everonce/internal/testserver"
	"github.com/everonce/everonce/store/memstore"
)

// TestScriptsOnRabbitMQ runs the program against RabbitMQ: $BROKER is its URL, $QUEUE has four dead letters, of which
// $KEY is the hash of the one that failed too often. The command "consumed" handles what is in the queue.
func TestScriptsOnRabbitMQ(t *testing.T) {
	url := testserver.URL(t, "rabbitmq")
	q := &letterQueue{url: url, queue: "cli." + strings.ToLower(rand.Text()), store: memstore.New(nil)}
	t.Cleanup(func() { q.remove(t) })
	cmds := map[string]func(*testscript.TestScript, bool, []string){"consumed": q.consumed}
	for name, cmd := range commands {
		cmds[name] = cmd
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/rabbitmq",
		RequireExplicitExec: true,
		Cmds:                cmds,
		Setup: func(env *testscript.Env) error {
			key, err := q.fill()
			if err != nil {
				return err
			}
			env.Setenv("BROKER", url)
			env.Setenv("QUEUE", q.queue)
			env.Setenv("KEY", key)
			return setup(env)
		},
	})
}

// letterQueue is a queue whose messages become dead letters at first.
type letterQueue struct {
	url, queue string
	store      everonce.Store
}

type letter struct {
	ID string `json:"id"`
}

// run handles messages until enough says so.
func (q *letterQueue) run(handle func(context.Context, *consume.Message, letter) error, begun func() error, enough func(consume.Decision) bool) error {
	recv, err := everonce.NewReceiver(q.store, everonce.Refuse, nil)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(context.Background())
	defer end()
	h, err := consume.New(recv, consume.Spec[letter]{
		Consumer: "billing", Key: consume.ProducerID(), Handle: handle, Retry: consume.RetryPolicy{Limit: -1},
		Observe: func(_ context.Context, _ *consume.Message, v consume.Decision) {
			if enough(v) {
				end() // and the drain gives the broker its answers
			}
		},
	})
	if err != nil {
		return err
	}
	opts := &rabbitonce.Options{Workers: consume.Workers{Concurrency: 1, Log: slog.New(slog.DiscardHandler)}}
	c, err := rabbitonce.Dial(ctx, q.url, rabbitonce.Queue{Name: q.queue}, h, opts)
	if err != nil {
		return err
	}
	if err := begun(); err != nil {
		return errors.Join(err, c.Close())
	}
	return c.Run(ctx)
}

// fill makes the dead letters, and returns the hash of one's key.
func (q *letterQueue) fill() (key string, err error) {
	buried := 0
	err = q.run(func(_ context.Context, m *consume.Message, _ letter) error {
		if m.ID == "m-4" {
			return everonce.NotDone(errors.New("the bank is closed"))
		}
		return everonce.Permanent("no_such_account", errors.New("there is no such account"), nil)
	}, q.publish, func(v consume.Decision) bool {
		if v.Death.Reason == consume.Exhausted {
			key = v.KeyHash
		}
		buried++
		return buried == 4
	})
	return key, err
}

func (q *letterQueue) publish() (err error) {
	conn, err := amqp.Dial(q.url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.Confirm(false); err != nil { // unconfirmed messages may be lost when the connection closes
		return err
	}
	for id, body := range map[string]string{"m-1": `{"id":"m-1"}`, "m-2": `{"id":"m-2"}`, "m-3": "no json", "m-4": `{"id":"m-4"}`} {
		msg := amqp.Publishing{MessageId: id, Headers: amqp.Table{"tenant": "acme"}, Body: []byte(body)}
		switch c, err := ch.PublishWithDeferredConfirm("", q.queue, true, false, msg); {
		case err != nil:
			return err
		case !c.Wait():
			return fmt.Errorf("the broker has not taken %s", id)
		}
	}
	return nil
}

// consumed handles one message, and writes what became of it.
func (q *letterQueue) consumed(ts *testscript.TestScript, _ bool, _ []string) {
	var seen string
	var outcome everonce.Outcome
	ts.Check(q.run(func(_ context.Context, m *consume.Message, v letter) error {
		seen = fmt.Sprintf("%s %s %d", v.ID, m.Headers["tenant"], m.Retries)
		return nil
	}, func() error { return nil }, func(v consume.Decision) bool { outcome = v.Outcome; return true }))
	_, err := fmt.Fprintf(ts.Stdout(), "%v %s\n", outcome, seen)
	ts.Check(err)
}

func (q *letterQueue) remove(t *testing.T) {
	t.Helper()
	conn, err := amqp.Dial(q.url)
	if err != nil {
		t.Fatal(err)
	}
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"", ".dead", ".retry.1s", ".retry.5s", ".retry.30s", ".retry.2m", ".retry.10m"} {
		if _, err := ch.QueueDelete(q.queue+suffix, false, false, false); err != nil {
			t.Error(err)
		}
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
}
