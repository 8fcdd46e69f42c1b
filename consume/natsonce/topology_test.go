package natsonce_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/natsonce"
	"github.com/everonce/everonce/store/memstore"
)

// Missing parts are named, and only the package's own are created.
func TestMissingPartsAreNamed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	stream, declare := b.queue.Stream, b.queue
	b.queue.Topology = natsonce.Check
	wants := func(name string) {
		t.Helper()
		if err := b.dial(); !errors.Is(err, natsonce.ErrTopology) || !strings.Contains(err.Error(), `"`+name+`"`) {
			t.Errorf("%v, want %s", err, name)
		}
	}
	wants(stream + "-dead")
	if _, err := natsonce.DialDeadLetters(context.Background(), b.url, b.queue, quick(nil)); !errors.Is(err, natsonce.ErrTopology) {
		t.Error(err)
	}
	b.stream(jetstream.StreamConfig{Name: b.dead(), Subjects: []string{b.dead() + ".other"}})
	wants(stream + "-dead") // which does not take its letters
	b.stream(jetstream.StreamConfig{Name: b.dead(), Subjects: []string{b.dead() + ".>"}})
	wants(stream + "-billing-retries")
	check := b.queue
	b.queue = declare
	b.declare()
	b.queue = check
	b.declare()
	if err := b.js.DeleteConsumer(context.Background(), stream, "billing"); err != nil {
		t.Fatal(err)
	}
	wants("billing")
	for _, q := range []natsonce.Queue{check, declare} {
		b.queue = q
		b.queue.Stream = "none-" + stream
		wants("none-" + stream)
	}
	b.queue = declare
}

// The stream of dead letters and the bucket of counts are made again if somebody deletes them, when they are needed.
func TestDeletedPartsAreDeclaredAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.run(specOf(func(context.Context, *consume.Message, order) error { return everonce.NotDone(errors.New("no")) }), one)
	if err := errors.Join(b.js.DeleteStream(context.Background(), b.dead()), b.js.DeleteKeyValue(context.Background(), b.counts())); err != nil {
		t.Fatal(err)
	}
	b.send("m-1")
	r.wants(everonce.Failed, everonce.Failed, everonce.Failed, everonce.Failed)
	if attempts := b.letter().Header.Get("x-everonce-attempts"); attempts != "4" {
		t.Errorf("%s attempts", attempts)
	}
	b.settled()
}

// A configuration that loses dead letters, or lets old messages run again, is logged once.
func TestWarningsForOperators(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	lines := func() (all string) {
		t.Helper()
		log := logging{lines: make(chan string, 100)}
		h, err := consume.New(newReceiver(t, memstore.New(nil)), specOf(nothing))
		if err != nil {
			t.Fatal(err)
		}
		c, err := natsonce.Dial(context.Background(), b.url, b.queue, h, &natsonce.Options{Workers: consume.Workers{Log: log.logger()}})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		for range len(log.lines) {
			all += <-log.lines
		}
		return all
	}
	if said := lines(); !strings.Contains(said, "max_age 0s") || strings.Contains(said, "dead letters") {
		t.Error(said)
	}
	if said := lines(); said != "" {
		t.Errorf("for an existing consumer: %s", said)
	}
	for want, c := range map[string]jetstream.StreamConfig{
		"max_age is 1h":  {MaxAge: time.Hour},
		"the oldest":     {MaxMsgs: 10},
		"per subject":    {MaxMsgsPerSubject: 10, Discard: jetstream.DiscardNew},
		"bytes, and dis": {MaxBytes: 1 << 20},
	} {
		c.Name, c.Subjects = b.dead(), []string{b.dead() + ".>"}
		b.stream(c)
		if said := lines(); !strings.Contains(said, want) || strings.Count(said, "\n") != 1 {
			t.Errorf("%s: %s", want, said)
		}
	}
	b.stream(jetstream.StreamConfig{Name: b.dead(), Subjects: []string{b.dead() + ".>"}, MaxMsgs: 10, Discard: jetstream.DiscardNew})
	if said := lines(); said != "" {
		t.Errorf("for one that keeps its dead letters: %s", said)
	}
}

// Arguments that cannot work are refused, without a word of a password.
func TestArguments(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h, err := consume.New(newReceiver(t, memstore.New(nil)), specOf(nothing))
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 201)
	for name, dial := range map[string]func() (*natsonce.Consumer, error){
		"no handler": func() (*natsonce.Consumer, error) {
			return natsonce.Dial(context.Background(), b.url, b.queue, nil, nil)
		},
		"no URL": func() (*natsonce.Consumer, error) { return natsonce.Dial(context.Background(), "", b.queue, h, nil) },
		"another scheme": func() (*natsonce.Consumer, error) {
			return natsonce.Dial(context.Background(), "amqp://me:secret@127.0.0.1", b.queue, h, nil)
		},
		"no URL at all": func() (*natsonce.Consumer, error) {
			return natsonce.Dial(context.Background(), "nats://me:secret@%zz", b.queue, h, nil)
		},
		"no stream": func() (*natsonce.Consumer, error) {
			return natsonce.Dial(context.Background(), b.url, natsonce.Queue{}, h, nil)
		},
		"a long name": func() (*natsonce.Consumer, error) {
			return natsonce.Dial(context.Background(), b.url, natsonce.Queue{Stream: long}, h, nil)
		},
		"a name with a dot": func() (*natsonce.Consumer, error) {
			return natsonce.Dial(context.Background(), b.url, natsonce.Queue{Stream: "s", Durable: "a.b"}, h, nil)
		},
		"its own dead letters": func() (*natsonce.Consumer, error) {
			return natsonce.Dial(context.Background(), b.url, natsonce.Queue{Stream: "s", DeadLetters: "s"}, h, nil)
		},
		"a short AckWait": func() (*natsonce.Consumer, error) {
			return natsonce.Dial(context.Background(), b.url, natsonce.Queue{Stream: "s", AckWait: time.Millisecond}, h, nil)
		},
		"a negative pause": func() (*natsonce.Consumer, error) {
			return natsonce.Dial(context.Background(), b.url, b.queue, h, &natsonce.Options{Backoff: consume.Backoff{Min: -1}})
		},
		"a batch in guarded mode": func() (*natsonce.Consumer, error) {
			return natsonce.Dial(context.Background(), b.url, b.queue, h, &natsonce.Options{Workers: consume.Workers{Batch: 2}})
		},
	} {
		if _, err := dial(); !errors.Is(err, everonce.ErrInvalidArgument) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := natsonce.Dial(context.Background(), "nats://me:secret@127.0.0.1:1", b.queue, h, quick(nil)); !errors.Is(err, natsonce.ErrUnreachable) || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
	ended, cancel := context.WithCancelCause(context.Background())
	why := errors.New("no time")
	cancel(why)
	if _, err := natsonce.Dial(ended, b.url, b.queue, h, quick(nil)); !errors.Is(err, why) {
		t.Error(err)
	}
	c, err := natsonce.Dial(context.Background(), b.url, b.queue, h, quick(nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Close(), c.Close()); err != nil {
		t.Error(err)
	}
	if err := c.Run(context.Background()); !errors.Is(err, everonce.ErrInvalidArgument) {
		t.Error(err)
	}
}
