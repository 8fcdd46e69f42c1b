package consume_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/store/memstore"
)

// A message that fails, or becomes a dead letter, is logged, also for a consumer without Observe: with the hash of its
// key, the reason and the error, and never with the key or the body.
func TestDecisionsAreLogged(t *testing.T) {
	for name, c := range map[string]struct {
		m      *consume.Message
		handle func() error
		want   []string
		silent bool
	}{
		"done":        {m: &consume.Message{ID: "k-secret", Body: []byte(`{"ID":"b-secret"}`)}, silent: true},
		"no key":      {m: &consume.Message{Body: []byte(`{"ID":"b-secret"}`)}, want: []string{"WARN", "message dead-lettered", "reason=no_key", "has no ID"}},
		"undecodable": {m: &consume.Message{ID: "k-secret", Body: []byte(`{"ID":17291}`)}, want: []string{"WARN", "reason=undecodable", `\"ID\" is not a string`}},
		"no object":   {m: &consume.Message{ID: "k-secret", Body: []byte(`[17291]`)}, want: []string{"WARN", "reason=undecodable", "it is not a consume_test.order"}},
		"failed": {
			m: &consume.Message{ID: "k-secret", Body: []byte(`{}`)}, handle: func() error { return everonce.NotDone(errors.New("no mail server")) },
			want: []string{"INFO", "failed and will be retried", "attempts=1 ", "after=", "no mail server"},
		},
		"failed too often": {
			m: &consume.Message{ID: "k-secret", Body: []byte(`{}`), Retries: 1000}, handle: func() error { return everonce.NotDone(errors.New("no mail server")) },
			want: []string{"WARN", "reason=exhausted", "attempts=1001", "no mail server"},
		},
		"unknown": {
			m: &consume.Message{ID: "k-secret", Body: []byte(`{}`)}, handle: func() error { return errors.New("a timeout") },
			want: []string{"WARN", "reason=unknown", "a timeout"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				consumer := serving(t, memstore.New(nil), func(context.Context, *consume.Message, order) error {
					if c.handle == nil {
						return nil
					}
					return c.handle()
				})
				in := make(chan consume.Delivery, 1)
				in <- &delivery{m: c.m}
				close(in)
				var logs bytes.Buffer
				err := consumer.Serve(t.Context(), in, &consume.Workers{Concurrency: 1, Log: slog.New(slog.NewTextHandler(&logs, nil))})
				if err != nil {
					t.Fatal(err)
				}
				text := logs.String()
				if c.silent != (text == "") || strings.Contains(text, "secret") || strings.Contains(text, "17291") {
					t.Errorf("the log is %q", text)
				}
				for _, want := range c.want {
					if !strings.Contains(text, want) {
						t.Errorf("the log is %q, without %q", text, want)
					}
				}
			})
		})
	}
}

// A wait for a store, or for a broker that accepts no answer, is logged each time, with the length of the pause: a
// second at first, doubled up to a minute.
func TestPausesAreLogged(t *testing.T) {
	for name, c := range map[string]struct {
		text    string
		workers consume.Workers
		handles func(t *testing.T) *consume.Consumer
		in      *delivery
	}{
		"a message": {text: "a message waits for the store", in: message("m-1"), handles: func(t *testing.T) *consume.Consumer {
			store := &downStore{Store: memstore.New(nil)}
			store.down.Store(true)
			return serving(t, store, done)
		}},
		"a batch": {text: "messages wait for the store", in: message("m-1"), workers: consume.Workers{Batch: 2}, handles: func(t *testing.T) *consume.Consumer {
			l := newLedger()
			l.down.Store(true)
			return booking(t, l, nil)
		}},
		"an answer": {text: "the broker did not accept an answer", in: &delivery{m: message("m-1").m, fails: slices.Repeat([]error{errDown}, 1000)}, handles: func(t *testing.T) *consume.Consumer {
			return serving(t, memstore.New(nil), done)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				consumer := c.handles(t)
				in := make(chan consume.Delivery, 1)
				in <- c.in
				var logs bytes.Buffer
				c.workers.Log = slog.New(slog.NewTextHandler(&logs, nil))
				ctx, end := context.WithTimeout(t.Context(), 5*time.Minute)
				defer end()
				if err := consumer.Serve(ctx, in, &c.workers); err != nil {
					t.Fatal(err)
				}
				var pauses []string
				for line := range strings.Lines(logs.String()) {
					if !strings.Contains(line, "level=WARN") || !strings.Contains(line, c.text) {
						t.Errorf("the log has %s", line)
					}
					_, pause, _ := strings.Cut(line, " pause=")
					pause, _, _ = strings.Cut(pause, " ")
					pauses = append(pauses, pause)
				}
				if len(pauses) < 8 || strings.Join(pauses[:8], " ") != "1s 2s 4s 8s 16s 32s 1m0s 1m0s" {
					t.Errorf("the pauses are %v", pauses)
				}
			})
		})
	}
}

// A rejected message that is dropped on request is logged too, since it leaves no dead letter.
func TestDroppedMessagesAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var decision consume.Decision
		r := rigged(t, refuses, func(s *consume.Spec[order]) {
			s.DropRejected = true
			s.Observe = func(_ context.Context, _ *consume.Message, v consume.Decision) { decision = v }
		})
		d := message("k-secret")
		in := make(chan consume.Delivery, 1)
		in <- d
		close(in)
		var logs bytes.Buffer
		if err := r.c.Serve(t.Context(), in, &consume.Workers{Log: slog.New(slog.NewTextHandler(&logs, nil))}); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"INFO", "rejected and dropped", "key=" + decision.KeyHash + " ", "no_such_account"} {
			if !strings.Contains(logs.String(), want) {
				t.Errorf("logged was %q, without %q", logs.String(), want)
			}
		}
		if !slices.Equal(d.how(), []string{"ack"}) || strings.Contains(logs.String(), "secret") {
			t.Errorf("it ended as %v; logged was %s", d.how(), logs.String())
		}
	})
}

// A panic is logged with the hash of the key, by which the message can be found, and with its stack.
func TestAPanicIsLoggedWithItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var decision consume.Decision
		r := rigged(t, func(context.Context, *consume.Message, order) error { panic("out of range") }, func(s *consume.Spec[order]) {
			s.Observe = func(_ context.Context, _ *consume.Message, v consume.Decision) { decision = v }
		})
		in := make(chan consume.Delivery, 1)
		in <- message("k-secret")
		close(in)
		var logs bytes.Buffer
		if err := r.c.Serve(t.Context(), in, &consume.Workers{Log: slog.New(slog.NewTextHandler(&logs, nil))}); err != nil {
			t.Fatal(err)
		}
		line, _, _ := strings.Cut(logs.String(), "\n")
		for _, want := range []string{"ERROR", "a handler panicked", "key=" + decision.KeyHash + " ", "out of range", "TestAPanicIsLoggedWithItsKey"} {
			if decision.KeyHash == "" || !strings.Contains(line, want) {
				t.Errorf("logged was %q, without %q", line, want)
			}
		}
		if strings.Contains(logs.String(), "secret") {
			t.Errorf("logged was %s", logs.String())
		}

		c := booking(t, newLedger(), func(s *txSpec) {
			s.Handle = func(context.Context, *ledgerTx, *consume.Message, order) error { panic("out of range") }
		})
		in = make(chan consume.Delivery, 1)
		in <- message("k-secret")
		close(in)
		logs.Reset()
		if err := c.Serve(t.Context(), in, &consume.Workers{Batch: 2, Log: slog.New(slog.NewTextHandler(&logs, nil))}); err != nil {
			t.Fatal(err)
		}
		if text := logs.String(); !strings.Contains(text, "a handler panicked") || !strings.Contains(text, "key="+decision.KeyHash+" ") {
			t.Errorf("of a batch, logged was %q", text)
		}
	})
}
