//go:build unix

package filestore_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/drivertest"
	"github.com/everonce/everonce/examples/filestore"
)

func TestConformance(t *testing.T) {
	drivertest.Run(t, newHarness, drivertest.Capabilities{MaxResult: 1 << 20})
}

// newHarness opens a folder twice, as two processes would, on a clock that stands until it is moved.
func newHarness(t testing.TB) drivertest.Harness {
	t.Helper()
	dir := t.TempDir()
	start, moved := time.Now(), new(atomic.Int64)
	now := func() time.Time { return start.Add(time.Duration(moved.Load())) }
	open := func() *filestore.Store {
		s, err := filestore.Open(dir, &filestore.Options{Now: now})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return s
	}
	return drivertest.Harness{Store: open(), Peer: open(), Advance: func(d time.Duration) { moved.Add(int64(d)) }}
}

// TestCorruptFile: a record that cannot be read is never taken for absent, and its content is not told.
func TestCorruptFile(t *testing.T) {
	dir := t.TempDir()
	s, err := filestore.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	key := everonce.Key{Scope: "shop", ID: "order-7"}
	r, err := everonce.NewReceiver(s, everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, key.RecordID().String()+".json")
	if err := os.WriteFile(file, []byte(`{"State":"order-7"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	ran := false
	_, err = everonce.Do(t.Context(), r, key, func(_ context.Context, _ *everonce.Attempt) (string, error) {
		ran = true
		return "", nil
	})
	if ran || !errors.Is(err, driver.ErrCorruptRecord) || !errors.Is(err, everonce.ErrStore) {
		t.Fatalf("the work ran: %v; error %v", ran, err)
	}
}
