package patterns

import (
	"context"
	"database/sql"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/inbox"
)

// lines are what was logged, line by line.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

func TestInboxTellsOfTypesWithoutAHandler(t *testing.T) {
	onAll(t, testInboxTellsOfTypesWithoutAHandler[pgx.Tx], testInboxTellsOfTypesWithoutAHandler[*sql.Tx])
}

// A type that no handler has is logged once, however many messages wait with it, and is counted beside the others.
func testInboxTellsOfTypesWithoutAHandler[Tx any](t *testing.T, h *handle[Tx]) {
	in := newInbox(t, h, nil)
	for id, kind := range map[string]string{"m-1": "order.unheard", "m-2": "order.unheard", "m-3": "order.young", "m-4": "order.placed"} {
		receive(t, in, &consume.Message{ID: id, Type: kind})
	}
	h.must(t, "UPDATE everonce_inbox SET due_at = due_at - 120000000 WHERE type = 'order.unheard'") // it has waited for two minutes
	logged := make(lines, 100)
	told, stop := working(t, in, &inbox.WorkerOptions{Log: slog.New(slog.NewTextHandler(logged, nil))}, inbox.Handler[Tx]{
		Types: []string{"order.placed"}, Handle: func(context.Context, Tx, *consume.Message) error { return nil },
	})
	told.await(t, 1)
	select {
	case line := <-logged:
		if !strings.Contains(line, "type=order.unheard") || !strings.Contains(line, "messages=2") {
			t.Error(line)
		}
	case <-time.After(hung):
		t.Error("nothing was logged")
	}
	stop()
	close(logged)
	for line := range logged {
		t.Errorf("logged too: %s", line)
	}
	kinds, err := in.Backlog().Kinds(t.Context())
	if err != nil || len(kinds) != 2 {
		t.Fatalf("%+v, %v", kinds, err)
	}
	for i, want := range []struct {
		kind        string
		n           int
		least, most time.Duration
	}{{"order.unheard", 2, 2 * time.Minute, time.Hour}, {"order.young", 1, 0, time.Minute}} {
		if k := kinds[i]; k.Kind != want.kind || k.Waiting != want.n || k.Untried != want.n || k.UntriedFor < want.least || k.UntriedFor >= want.most {
			t.Errorf("%+v, want %+v", k, want)
		}
	}
}
