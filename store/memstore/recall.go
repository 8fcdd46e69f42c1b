package memstore

import "github.com/everonce/everonce"

// Recall implements [everonce.Recaller].
func (s *Store) Recall(id everonce.RecordID) (r everonce.Recalled, ok bool) {
	sh := s.shard(&id)
	sh.mu.Lock()
	rec, exists := sh.records[id]
	if !exists || rec.State != everonce.StateCompleted || rec.Format > everonce.FormatVersion {
		sh.mu.Unlock()
		return r, false
	}
	r.Fingerprint, r.Result = rec.Fingerprint, rec.Result
	until := rec.ResultUntil
	sh.mu.Unlock()
	return r, until.IsZero() || s.now().Before(until)
}
