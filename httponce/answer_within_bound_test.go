package httponce_test

import (
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce/httponce"
)

// Only so many handlers go on without their clients. While there are as many a client waits for its handler, or for one
// of them to return; and however a handler ends that went on, its place is free again.
func TestMaxStillRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		takes := map[string]time.Duration{"stream": 5 * time.Second, "first": time.Minute, "quick": 10 * time.Second, "slow": 2 * time.Minute, "panics": time.Minute, "last": time.Minute}
		svc := newService(t, setup{
			opts: httponce.Options{MaxStillRunning: 1, Route: httponce.Route{AnswerWithin: time.Second}},
			handle: func(w http.ResponseWriter, r *http.Request) {
				key := r.Header.Get("Idempotency-Key")
				if key == "stream" {
					_, _ = io.WriteString(w, "begun")
					w.(http.Flusher).Flush()
				}
				time.Sleep(takes[key])
				if key == "panics" {
					panic(http.ErrAbortHandler)
				}
				if key != "stream" {
					w.WriteHeader(http.StatusCreated)
				}
			},
		})
		post := func(key string, want int, after time.Duration) {
			t.Helper()
			begun := time.Now()
			if g := svc.post(key); g.status != want || time.Since(begun) != after || want == http.StatusServiceUnavailable && g.problem != "still-running" {
				t.Errorf("%s: after %v it got %+v, want %d after %v", key, time.Since(begun), g, want, after)
			}
		}
		post("stream", http.StatusOK, 5*time.Second) // has begun to send, and so takes no place
		post("first", http.StatusServiceUnavailable, time.Second)
		post("quick", http.StatusCreated, 10*time.Second)
		post("slow", http.StatusServiceUnavailable, 49*time.Second) // when the first one has returned
		time.Sleep(time.Hour)
		post("panics", http.StatusServiceUnavailable, time.Second)
		time.Sleep(time.Hour)
		post("last", http.StatusServiceUnavailable, time.Second)
		time.Sleep(time.Hour)
		post("first", http.StatusCreated, 0)
		post("slow", http.StatusCreated, 0)
	})
}
