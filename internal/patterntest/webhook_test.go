package patterntest

import (
	"context"
	"database/sql"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/outbox"
	"github.com/everonce/everonce/outbox/webhook"
)

// A relay waits as long as a service asks for. Where each event has its endpoint, one that is away is asked less and less often.
func TestOutboxToWebhooks(t *testing.T) {
	t.Parallel()
	h := onSQLite(t)
	box := newOutbox(t, h)
	busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	t.Cleanup(busy.Close)
	away := httptest.NewServer(nil)
	away.Close()
	to, err := webhook.NewFunc(func(_ context.Context, e *outbox.Event) (webhook.Endpoint, error) {
		if e.Type == "away" {
			return webhook.Endpoint{URL: away.URL}, nil
		}
		return webhook.Endpoint{URL: busy.URL}, nil
	}, &webhook.Options{AllowPrivate: true})
	if err != nil {
		t.Fatal(err)
	}
	h.inTx(t, func(ctx context.Context, tx *sql.Tx) error {
		return box.Publish(ctx, tx, outbox.Event{Topic: "a", Type: "busy"}, outbox.Event{Topic: "a", Type: "away"})
	})
	h.must(t, "UPDATE everonce_outbox SET created_at = created_at - 400 * 1000000")
	type verdict struct {
		of    string
		after time.Duration
	}
	verdicts := make(chan verdict, 100)
	stop := relaying(t, box, to, &outbox.RelayOptions{Retry: consume.Backoff{Min: time.Minute}, Observe: func(_ context.Context, e *outbox.Event, v outbox.Verdict) {
		verdicts <- verdict{e.Type, v.After}
	}})
	defer stop()
	for range 2 {
		v := <-verdicts
		if least := map[string]time.Duration{"busy": time.Hour, "away": 3 * time.Minute}[v.of]; v.after < least {
			t.Errorf("%s is tried again after %v", v.of, v.after)
		}
	}
}
