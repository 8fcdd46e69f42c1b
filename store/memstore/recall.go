package memstore

import (
	"github.com/everonce/everonce/driver"
)

// Recall implements [driver.Recaller].
func (s *Store) Recall(id driver.RecordID) (r driver.Recalled, ok bool) {
	sh := s.shard(&id)
	sh.mu.Lock()
	e := sh.records.find(&id)
	if e == nil || e.state != driver.StateCompleted || int(e.format) > driver.FormatVersion {
		sh.mu.Unlock()
		return r, false
	}
	r.Fingerprint = e.print
	r.Result.Kind, r.Result.Codec, r.Result.Data, r.Result.Summary = e.kind, e.codec, e.data, e.summary
	until := e.result
	sh.mu.Unlock()
	return r, until == 0 || s.clock() < until
}
