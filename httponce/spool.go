package httponce

import (
	"errors"
	"sync/atomic"
)

// errSpoolFull: as much as may be is in temporary files already.
var errSpoolFull = errors.New("httponce: too many large request bodies are being kept")

// spool bounds what the bodies of a middleware have in temporary files together: [Route.MaxBody] bounds one of them, and
// not how many there are.
type spool struct {
	limit int64 // bytes
	used  atomic.Int64
}

// take reports whether there is room for so many bytes more. A nil spool has no bound.
func (s *spool) take(n int64) bool {
	if s == nil {
		return true
	}
	if s.used.Add(n) <= s.limit {
		return true
	}
	s.used.Add(-n)
	return false
}

// give gives back what was taken.
func (s *spool) give(n int64) {
	if s != nil && n != 0 {
		s.used.Add(-n)
	}
}
