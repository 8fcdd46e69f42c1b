package redisstore_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/redisstore"
)

// A user that may not use channels gets no word: its waiters ask, and its writes are done all the same.
func TestWaitersWithoutChannels(t *testing.T) {
	t.Parallel()
	p := startServer(t)
	command(t, p.client(t), "ACL", "SETUSER", "mute", "on", ">secret", "~*", "resetchannels", "+@all")
	opt := p.option()
	opt.Username, opt.Password = "mute", "secret"
	mute, loud := newStore(t, dial(t, opt), &redisstore.Options{}), newStore(t, p.client(t), &redisstore.Options{})
	rec := claimed(t, mute, testKey)
	if _, err := mute.Watch(t.Context(), driver.WatchRequest{ID: rec.ID}); err == nil {
		t.Error("a watch without channels is granted")
	}
	command(t, p.client(t), "ACL", "SETUSER", "wide", "on", ">secret", "~*", "resetchannels", "&everonce*", "+@all")
	opt.Username = "wide"
	if _, err := newStore(t, dial(t, opt), &redisstore.Options{}).Watch(t.Context(), driver.WatchRequest{ID: rec.ID}); err == nil {
		t.Error("a watch under a wider pattern of channels is granted")
	}
	w, err := loud.Watch(t.Context(), driver.WatchRequest{ID: rec.ID}) // the record is marked: its end sends word
	noErr(t, err)
	defer w.Stop()
	r, err := everonce.NewReceiver(mute, everonce.Refuse, &everonce.Options{Codec: everonce.Raw()})
	noErr(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		res, err := everonce.Do(t.Context(), r, testKey, func(context.Context, *everonce.Attempt) (string, error) {
			return "", errors.New("a waiter worked")
		}, everonce.WithWait(time.Minute))
		if err != nil || res.Value != "v" {
			t.Errorf("a waiter without channels: %q, %v", res.Value, err)
		}
	})
	_, err = mute.Complete(t.Context(), completionOf(&rec, "v"))
	noErr(t, err)
	wg.Wait()
}

// A server that restarts takes its subscriptions with it. A watch that began before ends when the subscription is
// renewed, because a message may have been lost in between, which happens here. A watch that begins afterwards hears of
// the end.
func TestWatchOverARestart(t *testing.T) {
	t.Parallel()
	p := startServer(t)
	client := p.client(t)
	s := newStore(t, client, &redisstore.Options{})
	rec := claimed(t, s, testKey)
	w, err := s.Watch(t.Context(), driver.WatchRequest{ID: rec.ID})
	noErr(t, err)
	defer w.Stop()
	other := claimed(t, s, everonce.Key{Scope: "watch", ID: "other"})
	p.kill(t)
	p.restart(t)
	_, err = newStore(t, p.client(t), &redisstore.Options{}).Complete(t.Context(), completionOf(&rec, "v"))
	noErr(t, err)
	reconnected(t, client)
	let := time.After(time.Minute)
	for what, ended := range map[string]func() <-chan struct{}{
		"who watched before": func() <-chan struct{} { return w.Ended },
		"who watches a finished attempt": func() <-chan struct{} {
			again, err := s.Watch(t.Context(), driver.WatchRequest{ID: rec.ID})
			noErr(t, err)
			t.Cleanup(again.Stop)
			return again.Ended
		},
		"who watches afterwards": func() <-chan struct{} {
			next, err := s.Watch(t.Context(), driver.WatchRequest{ID: other.ID})
			noErr(t, err)
			t.Cleanup(next.Stop)
			_, err = s.Complete(t.Context(), completionOf(&other, "v"))
			noErr(t, err)
			return next.Ended
		},
	} {
		select {
		case <-ended():
		case <-let:
			t.Errorf("%s does not hear of the end", what)
		}
	}
}

// However many wait, for whatever keys, there is one subscription; and who stops leaves nothing behind.
func TestStoppedWatchesLeaveNothing(t *testing.T) {
	t.Parallel()
	p := startServer(t)
	client := p.client(t)
	s := newStore(t, client, &redisstore.Options{})
	rec, other := claimed(t, s, testKey), claimed(t, s, everonce.Key{Scope: "watch", ID: "other"})
	var stops []func()
	for _, id := range []driver.RecordID{rec.ID, rec.ID, rec.ID, other.ID} {
		w, err := s.Watch(t.Context(), driver.WatchRequest{ID: id})
		noErr(t, err)
		stops = append(stops, w.Stop)
	}
	if n := redisstore.Watched(s); n != 2 {
		t.Errorf("four watches of two keys are %d, want 2", n)
	}
	if n, err := command(t, client, "PUBSUB", "NUMPAT").ToInt64(); n != 1 || err != nil {
		t.Errorf("there are %d subscriptions, want 1: %v", n, err)
	}
	if names, err := command(t, client, "PUBSUB", "CHANNELS").AsStrSlice(); len(names) != 0 || err != nil {
		t.Errorf("there are subscriptions besides: %q, %v", names, err)
	}
	for _, stop := range stops {
		stop()
		stop()
	}
	if n := redisstore.Watched(s); n != 0 {
		t.Errorf("%d keys are watched without a watcher", n)
	}
}

// A client that repeats nothing loses the subscription with its connection: who watched is let go, and who watches
// afterwards subscribes anew.
func TestWatchWithAClientThatRepeatsNothing(t *testing.T) {
	t.Parallel()
	p := startServer(t)
	opt := p.option()
	opt.DisableRetry = true
	client := dial(t, opt)
	s := newStore(t, client, &redisstore.Options{})
	rec := claimed(t, s, testKey)
	w, err := s.Watch(t.Context(), driver.WatchRequest{ID: rec.ID})
	noErr(t, err)
	defer w.Stop()
	p.kill(t)
	<-w.Ended
	p.restart(t)
	reconnected(t, client)
	w, err = s.Watch(t.Context(), driver.WatchRequest{ID: rec.ID})
	noErr(t, err)
	defer w.Stop()
	_, err = s.Complete(t.Context(), completionOf(&rec, "v"))
	noErr(t, err)
	<-w.Ended
}
