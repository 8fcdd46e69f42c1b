package consume_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
)

// An adapter of one's own gets its verdicts too where Observe panics: without them the broker would deliver again, for ever.
func TestAPanicOfObserveCostsNoVerdict(t *testing.T) {
	var logs bytes.Buffer
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(&logs, nil)))
	observe := func(context.Context, *consume.Message, consume.Verdict) { panic("no") }
	r := rigged(t, done, func(s *consume.Spec[order]) { s.Observe = observe })
	r.wants(first(), everonce.Executed, consume.Ack)
	r.wants(first(), everonce.Replayed, consume.Ack)
	c := booking(t, newLedger(), func(s *txSpec) { s.Observe = observe })
	for _, v := range c.HandleBatch(t.Context(), []*consume.Message{first(), first()}) {
		if v.Disposition != consume.Ack {
			t.Errorf("in a batch: %+v", v)
		}
	}
	if n := strings.Count(logs.String(), "Observe panicked"); n != 4 {
		t.Errorf("%d panics in the log: %s", n, logs.String())
	}
}
