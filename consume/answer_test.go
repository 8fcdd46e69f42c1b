package consume_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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

// bound is a delivery whose answers respect their context. The broker does not accept the first one.
type bound struct {
	*delivery
	asked  time.Duration // of Retry
	tries  int
	letter consume.Death // of SetAside
}

func (d *bound) SetAside(ctx context.Context, l consume.Death) error {
	d.letter = l
	return d.delivery.SetAside(ctx, l)
}

func (d *bound) Retry(ctx context.Context, after time.Duration, counts bool) error {
	d.asked = after
	if d.tries++; d.tries == 1 {
		<-ctx.Done()
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return d.delivery.Retry(ctx, after, counts)
}

// If the broker does not answer, Serve asks again after SettleTimeout, by default 10 s, with the same delay each time.
func TestAnAnswerIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rigged(t, fails, func(s *consume.Spec[order]) { s.Retry = consume.RetryPolicy{Min: time.Hour, Max: time.Hour} })
		d := &bound{delivery: message("m-1")}
		in := make(chan consume.Delivery, 1)
		in <- d
		close(in)
		start := time.Now()
		if err := r.c.Serve(t.Context(), in, &consume.Workers{Concurrency: 1, Log: quiet}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 11*time.Second || !slices.Equal(d.how(), []string{"retry true"}) { // and the pause
			t.Errorf("after %v it ended as %v", took, d.how())
		}
		if d.asked < 30*time.Minute || d.asked > time.Hour {
			t.Errorf("it comes again after %v", d.asked)
		}
	})
}

// A message that was handled after the end of the drain is still answered: the answer has a separate deadline.
func TestAnAnswerAfterTheDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		c := serving(t, memstore.New(nil), func(ctx context.Context, _ *consume.Message, _ order) error {
			end()
			<-ctx.Done()
			return everonce.NotDone(errors.New("too late"))
		})
		d := &bound{delivery: message("m-1"), tries: 1}
		in := make(chan consume.Delivery, 1)
		in <- d
		if err := c.Serve(ctx, in, &consume.Workers{DrainTimeout: time.Second, Log: quiet}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(d.how(), []string{"retry true"}) {
			t.Errorf("it ended as %v", d.how())
		}
	})
}

// The dead letter has the details of the decision. If the dead-letter queue refuses it, the message comes again after
// the longest delay, to avoid a loop.
func TestADeadLetterHasTheDecisionsDetails(t *testing.T) {
	var told consume.Decision
	r := rigged(t, done, func(s *consume.Spec[order]) {
		s.Retry.Max = time.Hour
		s.Observe = func(_ context.Context, _ *consume.Message, v consume.Decision) { told = v }
	})
	d := &bound{delivery: message(""), tries: 1}
	d.fails = []error{consume.ErrRefused}
	d.m.Source, d.m.Retries = "orders", 3
	in := make(chan consume.Delivery, 1)
	in <- d
	close(in)
	if err := r.c.Serve(t.Context(), in, &consume.Workers{Log: quiet}); err != nil {
		t.Fatal(err)
	}
	if d.letter != told.Death || d.letter.Reason != consume.NoKey || d.asked != time.Hour {
		t.Errorf("the dead letter %+v, and again after %v; the decision was %+v", d.letter, d.asked, told)
	}
}

// A message that cannot come again, because the broker accepts no copy of it, becomes a dead letter. If the
// dead-letter queue does not accept it either, it waits, and does not alternate between the two.
func TestAMessageThatCannotBeRetriedIsADeadLetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var letters int
		type own struct{}
		c := rigged(t, func(context.Context, *consume.Message, order) error { return everonce.NotDone(errors.New("not yet")) }, func(s *consume.Spec[order]) {
			s.Context = func(ctx context.Context, m *consume.Message) context.Context { return context.WithValue(ctx, own{}, m) }
			s.Observe = func(ctx context.Context, m *consume.Message, v consume.Decision) {
				if ctx.Value(own{}) != m {
					t.Errorf("Observe got %v in another context than Context returned", v.Disposition)
				}
				if v.Disposition == consume.SetAside {
					letters++
				}
			}
		}).c
		noCopy, refused := fmt.Errorf("%w: it is too large", consume.ErrNoCopy), fmt.Errorf("%w: the queue is full", consume.ErrRefused)
		var log bytes.Buffer
		once, never, behind := message("m-1"), message("m-2"), message("m-3")
		once.fails = []error{noCopy}
		never.fails = []error{noCopy, refused, noCopy}
		in := make(chan consume.Delivery, 3)
		for _, d := range []*delivery{once, never, behind} {
			in <- d
		}
		close(in)
		began := time.Now()
		if err := c.Serve(t.Context(), in, &consume.Workers{Concurrency: 1, Log: slog.New(slog.NewTextHandler(&log, nil))}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(once.ended, []string{"set_aside too_large"}) || !slices.Equal(never.ended, []string{"set_aside too_large"}) || !slices.Equal(behind.ended, []string{"retry true"}) {
			t.Errorf("they ended as %v, %v and %v", once.ended, never.ended, behind.ended)
		}
		if took := time.Since(began); took != 3*time.Second { // of the one that the dead letters did not take
			t.Errorf("it took %v", took)
		}
		if letters != 2 {
			t.Errorf("Observe got %d dead letters", letters)
		}
		if text := log.String(); !strings.Contains(text, "it is too large") || !strings.Contains(text, "not yet") {
			t.Errorf("the log does not say why: %s", text)
		}
	})
}
