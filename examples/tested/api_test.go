package tested

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/oncetest"
)

// request is a payment as its client sends it.
func request(ctx context.Context, tb testing.TB, p Payment) *http.Request {
	tb.Helper()
	body, err := json.Marshal(p)
	if err != nil {
		tb.Fatal(err)
	}
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/payments", bytes.NewReader(body))
	r.SetBasicAuth(p.Client, "secret")
	if p.ID != "" {
		r.Header.Set("Idempotency-Key", p.ID)
	}
	return r
}

// problems are what the API's problems mean.
var problems = map[string]everonce.Outcome{
	"missing-key": everonce.Invalid, "key-reused": everonce.Mismatch, "refused": everonce.Rejected,
	"in-progress": everonce.InProgress, "outcome-unknown": everonce.Unknown,
	"not-done": everonce.Failed, "commit-lost": everonce.Failed, "store-unavailable": everonce.StoreFailed,
}

// answer is what an answer of the API means to a client.
func answer(tb testing.TB, res *http.Response) oncetest.Answer {
	tb.Helper()
	body, err := io.ReadAll(res.Body)
	var problem struct{ Type string }
	if res.Header.Get("Content-Type") == "application/problem+json" {
		err = errors.Join(err, json.Unmarshal(body, &problem))
	}
	if err != nil {
		tb.Error(err)
	}
	name := strings.TrimSuffix(path.Base(problem.Type), ".md")
	switch {
	case problem.Type != "":
		return oncetest.Answer{Outcome: problems[name], Result: string(body), Err: errors.New(name)}
	case res.StatusCode >= http.StatusBadRequest:
		return oncetest.Answer{Outcome: everonce.Rejected, Result: string(body), Err: errors.New(res.Status)}
	case res.Header.Get("Idempotent-Replayed") == "true":
		return oncetest.Answer{Outcome: everonce.Replayed, Result: string(body)}
	}
	return oncetest.Answer{Outcome: everonce.Executed, Result: string(body)}
}

// TestAPI holds the HTTP API to the practice list.
func TestAPI(t *testing.T) {
	t.Parallel()
	var system func(tb testing.TB, w *world, f *oncetest.Faults) oncetest.System
	system = func(tb testing.TB, w *world, f *oncetest.Faults) oncetest.System {
		tb.Helper()
		api, err := w.service(tb, f).API()
		if err != nil {
			tb.Fatal(err)
		}
		return oncetest.System{
			Deliver: func(ctx context.Context, op oncetest.Operation) oncetest.Answer {
				w := httptest.NewRecorder()
				api.ServeHTTP(w, request(ctx, tb, payment(op)))
				return answer(tb, w.Result())
			},
			Effects: w.charges,
			Restart: func(f *oncetest.Faults) oncetest.System { return system(tb, w, f) },
		}
	}
	oncetest.Run(t, oncetest.Subject{
		Mode: oncetest.Transactional, Lease: lease, Operations: operations, Capabilities: capabilities,
		New: func(tb testing.TB, f *oncetest.Faults) oncetest.System {
			tb.Helper()
			return system(tb, newWorld(tb), f)
		},
	})
}
