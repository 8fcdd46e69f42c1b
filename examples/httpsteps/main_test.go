package main

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/sqlitestore"
)

const want = `
  gateway: charged 1200
alice ride-1: 503 not finished yet
  gateway: this key is known
  mail to alice: receipt-1
the service itself: found 1
alice ride-1: 201 /rides/1
alice ride-1: 201 /rides/1
alice ride-2: 402 the card is declined
alice ride-2: 402 the card is declined
  gateway: charged 1300
  mail to alice: receipt-2
alice ride-3: 503 not finished yet
alice ride-3: 409 (a problem)
the service itself: found 0
`

// TestEffectsOfAHandler makes a gateway and a mail server lose their answers, and compares the effects and the
// responses.
func TestEffectsOfAHandler(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), &out, filepath.Join(t.TempDir(), "test.db")); err != nil {
		t.Fatal(err)
	}
	if got := "\n" + out.String(); got != want {
		t.Errorf("it printed%s\nwant%s", got, want)
	}
}

// A process that died before its first step has left a record and no ride. It is dropped, and nothing of another route
// is.
func TestWhatHasNotBegunIsDropped(t *testing.T) {
	ctx := t.Context()
	store, err := sqlitestore.Open(ctx, filepath.Join(t.TempDir(), "test.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := tables(ctx, store); err != nil {
		t.Fatal(err)
	}
	s, err := newService(store, &world{out: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	left := map[everonce.Scope]error{
		everonce.ScopeOf("alice", "POST", "/rides"):   everonce.ErrReleased,
		everonce.ScopeOf("alice", "POST", "/refunds"): everonce.ErrOutcomeUnknown,
	}
	dies, err := everonce.NewReceiver(store, everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	for scope := range left {
		if _, err := everonce.Do(ctx, dies, everonce.Key{Scope: scope, ID: "k"}, func(context.Context, *everonce.Attempt) (string, error) {
			return "", errors.New("the process died")
		}); !errors.Is(err, everonce.ErrOutcomeUnknown) {
			t.Fatal(err)
		}
	}
	if found, err := s.finish(ctx, 0); err != nil || found != 1 {
		t.Errorf("found %d, %v", found, err)
	}
	for scope, want := range left {
		if _, err := everonce.Lookup[string](ctx, s.receiver, everonce.Key{Scope: scope, ID: "k"}); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", scope, err, want)
		}
	}
}
