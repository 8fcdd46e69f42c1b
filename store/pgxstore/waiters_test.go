package pgxstore_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
)

// opsBegun receives whenever an operation begins.
type opsBegun chan struct{}

func (b opsBegun) Start(ctx context.Context, _ everonce.Op) context.Context {
	b <- struct{}{}
	return ctx
}

func (opsBegun) End(context.Context, everonce.Observation) {}

// Requests that wait hold no connection of the pool: with two of them, of which the first request has one, any number
// may wait while other keys are worked on (rule 15).
func TestWaitingRequestsHoldNoConnection(t *testing.T) {
	t.Parallel()
	const waiting = 40
	h := newPgx(t, setup{conns: 2})
	begun, free := make(opsBegun, 2*waiting+10), make(chan struct{})
	letGo := sync.OnceFunc(func() { close(free) })
	recv, err := everonce.NewTxReceiver(h.store, &everonce.Options{Observer: begun})
	noErr(t, err)
	handler, err := httponce.HandleTx(recv, httponce.Unscoped(), func(w http.ResponseWriter, r *http.Request, tx pgx.Tx) error {
		key := r.Header.Get("Idempotency-Key")
		if key == "slow" {
			<-free
		}
		w.WriteHeader(http.StatusCreated)
		return h.effect(r.Context(), tx, key)
	}, nil)
	noErr(t, err)
	post := func(key string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader("{}"))
		r.Header.Set("Idempotency-Key", key)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}
	var all sync.WaitGroup
	defer all.Wait()
	defer letGo()
	for range 1 + waiting {
		all.Go(func() {
			if w := post("slow"); w.Code != http.StatusCreated {
				t.Errorf("slow: %d %s", w.Code, w.Body)
			}
		})
	}
	for range 1 + 2*waiting { // each that waits has begun twice
		<-begun
	}
	for _, key := range []string{"other-1", "other-2"} {
		if w := post(key); w.Code != http.StatusCreated {
			t.Errorf("%s: %d %s", key, w.Code, w.Body)
		}
	}
	letGo()
	all.Wait()
	if n := h.effects(t, "slow"); n != 1 {
		t.Errorf("%d effects", n)
	}
}
