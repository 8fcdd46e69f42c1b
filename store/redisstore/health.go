package redisstore

import (
	"context"
	"encoding/binary"
	"strconv"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/transition"
)

// Health implements [driver.HealthChecker]. It scans all keys of the server and reads the head of every record. While
// it counts, it holds 8 bytes of memory for each record.
func (s *Store) Health(ctx context.Context, _ driver.HealthRequest) (h driver.HealthResult, err error) {
	if h, err = s.count(ctx); err != nil {
		return driver.HealthResult{}, wrapError("health", err)
	}
	all, err := s.ask(ctx)
	if err != nil {
		return driver.HealthResult{}, wrapError("health", err)
	}
	h.Notes = s.notes(all)
	return h, nil
}

func (s *Store) count(ctx context.Context) (h driver.HealthResult, err error) {
	if h.Now, err = s.now(ctx); err != nil {
		return h, err
	}
	seen := make(map[uint64]struct{}) // a scan may tell a key more than once
	return h, s.scan(ctx, s.pattern("", driver.KeyHash{}), func(ids []driver.RecordID) (bool, error) {
		texts, err := s.heads(ctx, ids, "GETRANGE", "0", strconv.Itoa(lenFixed-1))
		if err != nil {
			return false, err
		}
		for i, text := range texts {
			hash := binary.LittleEndian.Uint64(ids[i][8:])
			if _, twice := seen[hash]; twice || text == nil || *text == "" { // it has gone
				continue
			}
			seen[hash] = struct{}{}
			add(&h, *text)
		}
		return true, nil
	})
}

// add counts a record by its head.
func add(h *driver.HealthResult, text string) {
	var rec driver.Record
	if !head(text, &rec) || rec.Format > driver.FormatVersion || damaged(text, &rec) != "" {
		h.Unreadable++
		return
	}
	transition.Count(h, &rec)
}
