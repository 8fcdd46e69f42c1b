package redisstore

import (
	"errors"
	"testing"
	"time"

	"github.com/everonce/everonce/driver"
)

// FuzzDecode reads what may stand under a record's or a step's name: a record that can be decided on and has no more in
// it than what was read, or ErrCorruptRecord, and never a panic.
func FuzzDecode(f *testing.F) {
	var id driver.RecordID
	fr := fresh{
		nonce: new(driver.Nonce), state: driver.StateClaimed, attempt: 1, lease: 1, fingerprint: &driver.Fingerprint{Alg: "parts/1"},
		scope: "tenant/charge", name: "order-7", owner: "host:1",
	}
	good := append([]byte("\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00"), fr.append(nil)...)
	var rec driver.Record
	if _, err := decode(&id, string(good), &rec); err != nil || rec.Scope != "tenant/charge" || rec.Name != "order-7" || rec.Owner != "host:1" || rec.Token != 1 {
		f.Fatalf("%+v, %v", rec, err)
	}
	f.Add(string(good))
	f.Add("")
	f.Add(string(good[:100]))
	f.Add("\x02\x01\x00\x00\x00")
	newer := string(good[:32]) + "\x02" // the format, and nothing behind it
	if _, err := decode(&id, newer, &rec); err != nil || rec.Format != 2 {
		f.Fatalf("%+v, %v", rec, err)
	}
	attempts := []byte(string(good)) // more of them than a 32-bit int has
	copy(attempts[63:], "\xff\xff\xff\xff")
	f.Add(string(attempts))
	f.Fuzz(func(t *testing.T, s string) {
		var rec driver.Record
		switch data, err := decode(&id, s, &rec); {
		case err != nil:
			if !errors.Is(err, driver.ErrCorruptRecord) {
				t.Errorf("decode: %v", err)
			}
		case rec.Format <= driver.FormatVersion:
			decidable(t, &rec)
			if got := lenFixed + len(rec.Scope) + len(rec.Name) + len(rec.Owner) + len(rec.LastError) + len(rec.Result.Summary) + len(data); got > len(s) {
				t.Errorf("%d bytes were read of %d", got, len(s))
			}
		}
		switch step, _, err := decodeStep(&id, "step", s); {
		case err != nil:
			if !errors.Is(err, driver.ErrCorruptRecord) {
				t.Errorf("decodeStep: %v", err)
			}
		case step.Attempt < 0 || !step.Readable() || len(step.Result.Data)+len(step.Result.Summary) > len(s):
			t.Errorf("a step was read: %+v", step)
		}
		var h driver.HealthResult
		add(&h, s)
		_ = infoOf(s)
	})
}

// decidable checks what a claim relies on.
func decidable(t *testing.T, rec *driver.Record) {
	t.Helper()
	if rec.State < driver.StateClaimed || rec.State > driver.StateCompleted || (rec.State == driver.StateCompleted) != (rec.Result.Kind != 0) || rec.Token <= 0 || rec.Attempt < 0 {
		t.Errorf("what was read is no record: %+v", rec)
	}
	for _, at := range []time.Time{rec.LeaseUntil, rec.CreatedAt, rec.ClaimedAt, rec.UpdatedAt, rec.CompletedAt, rec.ResultUntil, rec.PurgeAt, rec.Previous.ClaimedAt} {
		if y := at.Year(); y < 1600 && !at.IsZero() || y > 2600 {
			t.Errorf("a time is %v: %+v", at, rec)
		}
	}
	for _, take := range []driver.TakeOver{driver.TakeNone, driver.TakeForced} {
		if d := driver.Decide(rec, driver.ClaimRequest{Nonce: driver.Nonce{1}, Take: take, Lease: time.Minute}, time.Unix(1_790_000_000, 0)); d < driver.DecideClaimed {
			t.Errorf("no decision on %+v", rec)
		}
	}
}
