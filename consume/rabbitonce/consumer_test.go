package rabbitonce_test

import (
	"context"
	"errors"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
)

// A publisher's resend is another message to the broker, which does not flag it as redelivered: its key is what
// tells, and the effect is one.
func TestAPublishersResendTakesEffectOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	handled := 0
	flagged := false
	r := b.run(specOf(func(_ context.Context, m *consume.Message, _ order) error {
		handled++
		flagged = flagged || m.Redelivered
		return nil
	}), nil)
	b.send(message("m-1"), message("m-1"), message("m-1"))
	r.wants(everonce.Executed, everonce.Replayed, everonce.Replayed)
	r.stop()
	if handled != 1 || flagged {
		t.Errorf("handled %d times, flagged as redelivered: %v", handled, flagged)
	}
	b.wantLength(b.queue.Name, 0)
}

// What failed comes again through a queue with a delay, and is counted; it is one operation.
func TestRetriedThroughADelayQueue(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var seen []consume.Message
	r := b.run(specOf(func(_ context.Context, m *consume.Message, _ order) error {
		seen = append(seen, *m)
		if len(seen) < 3 {
			return everonce.NotDone(errors.New("not yet"))
		}
		return nil
	}), nil)
	b.send(message("m-1"))
	r.wants(everonce.Failed, everonce.Failed, everonce.Executed)
	r.stop()
	for i, m := range seen {
		if m.Retries != i || m.ID != "m-1" || m.Source != b.queue.Name || m.Subject != b.queue.Name || len(m.Headers)+len(m.Odd) != 0 {
			t.Errorf("delivery %d: %+v", i+1, m)
		}
	}
}

// What fails too often becomes a dead letter, which says all that is known of it, with the key's hash as its message ID.
func TestExhaustedBecomesADeadLetter(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.run(specOf(func(context.Context, *consume.Message, order) error {
		return everonce.NotDone(errors.New("the bank is closed"))
	}), nil)
	b.send(message("m-1"))
	r.wants(everonce.Failed, everonce.Failed, everonce.Failed)
	v := r.verdict()
	d := b.letter()
	if d.MessageId != v.KeyHash || d.Headers["x-everonce-message-id"] != "m-1" || d.Headers["x-everonce-reason"] != "exhausted" ||
		d.Headers["x-everonce-attempts"] != int64(4) || d.Headers["x-everonce-queue"] != b.queue.Name || d.Headers["x-everonce-consumer"] != "billing" ||
		d.Headers["x-everonce-first"] == nil || d.Headers["x-everonce-last"] == nil || d.Headers["x-everonce-detail"] != "the bank is closed" ||
		string(d.Body) != `{"id":"m-1"}` || d.DeliveryMode != 2 {
		t.Errorf("%+v", d)
	}
}
