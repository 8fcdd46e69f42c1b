package redisstore

import (
	"errors"
	"testing"

	"github.com/everonce/everonce"
)

// FuzzDecode reads what may stand under a record's or a step's name: a record, or ErrCorruptRecord, and never a panic.
func FuzzDecode(f *testing.F) {
	var id everonce.RecordID
	fr := fresh{
		nonce: new(everonce.Nonce), state: everonce.StateClaimed, attempt: 1, lease: 1, fingerprint: &everonce.Fingerprint{Alg: "parts/1"},
		scope: "tenant/charge", name: "order-7", owner: "host:1",
	}
	good := append([]byte("\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00"), fr.append(nil)...)
	var rec everonce.Record
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
	f.Fuzz(func(t *testing.T, s string) {
		var rec everonce.Record
		if _, err := decode(&id, s, &rec); err != nil && !errors.Is(err, everonce.ErrCorruptRecord) {
			t.Errorf("decode: %v", err)
		}
		if _, _, err := decodeStep(&id, "step", s); err != nil && !errors.Is(err, everonce.ErrCorruptRecord) {
			t.Errorf("decodeStep: %v", err)
		}
		var h everonce.Health
		add(&h, s)
		_ = infoOf(s)
	})
}
