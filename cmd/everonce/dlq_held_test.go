package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Letters that a consumer or another command holds cannot be seen. The command warns about that, instead of just
// showing an empty list, and stops warning when they are free again.
func TestHeldLettersAreReported(t *testing.T) {
	url, queue, publish := lettersOf(t, amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum})
	publish(amqp.Publishing{MessageId: "m-1", Headers: amqp.Table{"x-everonce-reason": "exhausted", "x-everonce-queue": queue}})
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // it was only for this
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	for how, take := range map[string]func() (giveBack func() error){
		"a look": func() func() error {
			d, ok, err := ch.Get(queue+".dead", false)
			if !ok || err != nil {
				t.Fatal(ok, err)
			}
			return func() error { return d.Nack(false, true) }
		},
		"a consumer": func() func() error {
			in, err := ch.Consume(queue+".dead", "other", false, false, false, false, nil)
			if err != nil {
				t.Fatal(err)
			}
			d := <-in
			return func() error {
				if err := ch.Cancel("other", false); err != nil {
					return err
				}
				return d.Nack(false, true)
			}
		},
	} {
		giveBack := take()
		for _, c := range []struct {
			args []string
			json string
			code int
		}{
			{args: []string{"list"}, json: `{"letters":[],"consumers":1}`},
			{args: []string{"list", "--count"}, json: `{"letters":0,"reasons":{},"consumers":1}`},
			{args: []string{"show", "--reason", "exhausted"}, code: exitNotFound},
			{args: []string{"replay", "--dry-run"}, json: `{"done":0,"dry_run":true,"consumers":1}`},
			{args: []string{"replay", "--yes"}, json: `{"done":0,"consumers":1}`},
			{args: []string{"discard", "--all", "--yes"}, json: `{"done":0,"consumers":1}`},
		} {
			args := append([]string{"dlq", "--broker", url, "--queue", queue}, c.args...)
			var out, said bytes.Buffer
			if code := execute(context.Background(), args, strings.NewReader(""), &out, &said); code != c.code || !strings.Contains(said.String(), "(1 consumer)") {
				t.Errorf("%s, %v: %d, said was %q", how, c.args, code, said.String())
			}
			out.Reset()
			said.Reset()
			if code := execute(context.Background(), append(args, "--json"), strings.NewReader(""), &out, &said); code != c.code || strings.TrimSpace(out.String()) != c.json || strings.Contains(said.String(), "consumer") {
				t.Errorf("%s, %v: %d, %q, said was %q", how, c.args, code, out.String(), said.String())
			}
		}
		if err := giveBack(); err != nil {
			t.Fatal(err)
		}
		takeable(t, ch, queue+".dead")
	}
	if out, said := dlqOut(t, "list", "--broker", url, "--queue", queue, "--count", "--json"); out != `{"letters":1,"reasons":{"exhausted":1}}`+"\n" || said != "" {
		t.Errorf("afterwards: %q, %q", out, said)
	}
}

// takeable waits until a letter is back in the queue and no consumer holds one.
func takeable(t *testing.T, ch *amqp.Channel, queue string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		switch q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil); {
		case err != nil:
			t.Fatal(err)
		case q.Messages == 1 && q.Consumers == 0:
			return
		case time.Now().After(end):
			t.Fatal("the letter is not back")
		}
	}
}
