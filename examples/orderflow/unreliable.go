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

// unreliable makes a handler lose some answers after the work was done, and handles an order with a slow card after the
// caller has stopped waiting, as if the network had delayed it.
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
