//go:build unix

package filestore_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/drivertest"
	"github.com/everonce/everonce/examples/filestore"
)

func TestConformance(t *testing.T) {
	drivertest.Run(t, newHarness, drivertest.Capabilities{HealthChecker: true, MaxResult: 1 << 20})
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
	set := func(field, value string) func(driver.RecordID) {
		return func(id driver.RecordID) { setField(t, filepath.Join(dir, id.String()+".json"), field, value) }
	}
	return drivertest.Harness{
		Store: open(), Peer: open(), Advance: func(d time.Duration) { moved.Add(int64(d)) },
		Newer:   set("Format", strconv.Itoa(driver.FormatVersion+1)),
		Damages: map[string]func(driver.RecordID){"its state": set("State", "77"), "no state": set("State", `"none"`), "an earlier time": set("ClaimedAt", "-1")},
	}
}

// setField changes one field of a record's file.
func setField(t testing.TB, file, field, value string) {
	t.Helper()
	data, err := os.ReadFile(file)
	fields := make(map[string]json.RawMessage)
	if err == nil {
		err = json.Unmarshal(data, &fields)
	}
	fields[field] = json.RawMessage(value)
	if err == nil {
		data, err = json.Marshal(fields)
	}
	if err == nil {
		err = os.WriteFile(file, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestPurgePassesOverDamage: an unreadable file does not stop a purge of the others.
func TestPurgePassesOverDamage(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	s, err := filestore.Open(dir, &filestore.Options{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	for _, first := range []byte{0x00, 0xff} { // before and behind what is to go
		if err := os.WriteFile(filepath.Join(dir, driver.RecordID{first}.String()+".json"), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	req := driver.ClaimRequest{ID: driver.RecordID{0x77}, Nonce: driver.Nonce{1}, Lease: time.Second, Lifetime: driver.Lifetime{Retention: time.Minute}, ExpireUnsettled: true}
	if _, err := s.Claim(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Hour)
	if got, err := s.Purge(t.Context(), driver.PurgeRequest{}); err != nil || got.Records != 1 {
		t.Errorf("purged %+v, %v; want one record", got, err)
	}
	if h, err := s.Health(t.Context(), driver.HealthRequest{}); err != nil || h.Unreadable != 2 {
		t.Errorf("counted %+v, %v; want two that cannot be read", h, err)
	}
}

// TestCorruptFile: a record that cannot be read is never taken for absent, and its content is not in the error.
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
