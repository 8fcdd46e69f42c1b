package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/everonce/everonce/saga"
)

// unreliable is a handler on a bad day: some answers get lost after the work was done, and an order with a slow card is
// worked on when nobody waits for it any more, as if the network had kept it back.
func unreliable(h http.Handler, random *rand.Rand) http.Handler {
	var mu sync.Mutex
	loses := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(10) == 0
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r = r.WithContext(context.WithoutCancel(r.Context()))
		r.Body = io.NopCloser(bytes.NewReader(body))
		var o Order
		b, _ := saga.ParseBranch(r.Header.Get) //nolint:errcheck // the handler looks at it
		if json.Unmarshal(body, &o) == nil && o.Card == slowCard && b.Step == "charge" && !b.Compensating {
			time.Sleep(700 * time.Millisecond)
		}
		if loses() {
			h.ServeHTTP(nowhereToWrite{}, r)
			panic(http.ErrAbortHandler)
		}
		h.ServeHTTP(w, r)
	})
}

// nowhereToWrite is the writer of an answer that gets lost.
type nowhereToWrite struct{}

func (nowhereToWrite) Header() http.Header         { return http.Header{} }
func (nowhereToWrite) WriteHeader(int)             {}
func (nowhereToWrite) Write(p []byte) (int, error) { return len(p), nil }
