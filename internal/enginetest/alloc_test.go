//go:build !race

package enginetest

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// Allocations are counted here, not time: they are the same on every machine. The test is skipped under the race
// detector, which allocates too.
func TestAllocations(t *testing.T) {
	const runs = 1000
	ctx := context.Background()
	value := []byte("receipt")
	work := func(context.Context, *everonce.Attempt) ([]byte, error) { return value, nil }
	r := newReceiver(t, memstore.New(nil), everonce.Refuse, &everonce.Options{Codec: everonce.Raw()})
	keys := make([]everonce.Key, runs+2)
	for i := range keys {
		keys[i] = keyOf(strconv.Itoa(i))
	}
	call := func(key everonce.Key, want everonce.Outcome, opts ...everonce.CallOption) {
		if res, err := everonce.Do(ctx, r, key, work, opts...); err != nil || res.Outcome != want {
			t.Fatal(res.Outcome, err)
		}
	}
	i := 0
	newKey := testing.AllocsPerRun(runs, func() { call(keys[i], everonce.Executed); i++ })
	printed := everonce.FingerprintOf("EUR", 4200)
	i, keys = 0, append([]everonce.Key(nil), keys...)
	for n := range keys {
		keys[n].ID += " with a fingerprint"
	}
	fingerprinted := testing.AllocsPerRun(runs, func() { call(keys[i], everonce.Executed, &printed); i++ })
	prepared, err := r.Prepare(everonce.WithLease(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	for n := range keys {
		keys[n].ID += ", prepared"
	}
	i = 0
	ready := testing.AllocsPerRun(runs, func() { call(keys[i], everonce.Executed, prepared, &printed); i++ })
	replay := testing.AllocsPerRun(runs, func() { call(keys[0], everonce.Replayed) })
	// The attempt, the saved copy of the value, a timer and what it calls, the record as claimed and as completed;
	// the copy that is handed out.
	if newKey > 6 {
		t.Errorf("a new key costs %v allocations, want at most 6", newKey)
	}
	if fingerprinted > newKey || ready > newKey {
		t.Errorf("a new key costs %v allocations with a fingerprint, and %v with options that were prepared beside it; want no more than %v", fingerprinted, ready, newKey)
	}
	if replay > 1 {
		t.Errorf("a replay costs %v allocations, want at most 1", replay)
	}
	id := keys[0].RecordID()
	for name, f := range map[string]func(){
		"a valid key":       func() { _ = keys[0].Validate() },
		"a record ID":       func() { id = keys[0].RecordID() },
		"a plain scope":     func() { _ = everonce.ScopeOf("tenant") },
		"a nonce":           func() { _ = driver.NewNonce() },
		"no attempt at all": func() { _, _ = everonce.AttemptFrom(ctx) },
	} {
		if n := testing.AllocsPerRun(runs, f); n > 0 {
			t.Errorf("%s costs %v allocations, want none", name, n)
		}
	}
	_ = id
}
