package memstore

import "github.com/everonce/everonce"

// Recall implements [everonce.Recaller].
func (s *Store) Recall(id everonce.RecordID) (r everonce.Recalled, ok bool) {
	sh := s.shard(&id)
	sh.mu.Lock()
	e, exists := sh.records[id]
	if !exists || e.state != everonce.StateCompleted || e.format > everonce.FormatVersion {
		sh.mu.Unlock()
		return r, false
	}
	r.Fingerprint.Alg, r.Fingerprint.Sum = e.alg, e.sum
	r.Result.Kind, r.Result.Codec, r.Result.Data = e.kind, e.codec, e.data
	if e.rare != nil {
		r.Result.Summary = e.rare.summary
	}
	until := e.result
	sh.mu.Unlock()
	return r, until == 0 || s.clock() < until
}
