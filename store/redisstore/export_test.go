package redisstore

import (
	"context"

	"github.com/everonce/everonce/driver"
)

// InfoOf parses what INFO answers.
var InfoOf = infoOf

// KeyOf returns the key of a record.
func KeyOf(s *Store, id driver.RecordID) string { return s.keys(&id).record }

// FormatByte is the format that a new record is given.
func FormatByte() int {
	f := fresh{nonce: new(driver.Nonce), fingerprint: new(driver.Fingerprint)}
	return int(f.append(nil)[16])
}

// Decode reads the text of a record.
func Decode(id driver.RecordID, text string) (rec driver.Record, err error) {
	_, err = decode(&id, text, &rec)
	return rec, err
}

// Watched counts the keys that somebody waits for.
func Watched(s *Store) int {
	s.watches.mu.Lock()
	defer s.watches.mu.Unlock()
	return len(s.watches.byKey)
}

// Scan calls each behind each step of a scan.
func Scan(ctx context.Context, s *Store, each func()) error {
	return s.scan(ctx, s.pattern("", driver.KeyHash{}), func([]driver.RecordID) (bool, error) {
		each()
		return true, nil
	})
}
