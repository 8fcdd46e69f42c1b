package redisstore_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/redis/rueidis"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/redisstore"
)

// A server that runs a slow script refuses all other commands meanwhile. A caller that stops waiting then must send
// only commands whose refusal the client can take: rueidis sends a PING behind each UNSUBSCRIBE, and ends the process
// where both are refused.
func TestAWatchStopsWhileTheServerIsBusy(t *testing.T) {
	t.Parallel()
	p := startServer(t, "--busy-reply-threshold", "1")
	client, other := p.client(t), p.client(t)
	s := newStore(t, client, &redisstore.Options{})
	rec := claimed(t, s, testKey)
	w, err := s.Watch(t.Context(), driver.WatchRequest{ID: rec.ID})
	noErr(t, err)

	var slow sync.WaitGroup
	send := func(c rueidis.Client, words ...string) error {
		return c.Do(t.Context(), c.B().Arbitrary(words...).Build()).Error()
	}
	slow.Go(func() { _ = send(other, "EVAL", "while true do end", "0") }) //nolint:errcheck // it is killed
	defer slow.Wait()
	defer send(client, "SCRIPT", "KILL") //nolint:errcheck // if it runs no more, there is nothing to kill
	busy := func() bool {
		err := send(client, "PING")
		return err != nil && strings.HasPrefix(err.Error(), "BUSY")
	}
	for !busy() {
		if t.Context().Err() != nil {
			t.Fatal("the server is not busy")
		}
	}
	w.Stop()
	for range 100 {
		if !busy() {
			t.Fatal("the server is not busy any more")
		}
	}
	if _, err := s.Watch(t.Context(), driver.WatchRequest{ID: rec.ID}); err == nil {
		t.Error("a busy server grants a watch")
	}
}
