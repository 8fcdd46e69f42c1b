package httponce

import (
	"errors"
	"sync/atomic"
)

// errSpoolFull: as much as may be is in temporary files already.
var errSpoolFull = errors.New("httponce: too many large request bodies are kept at this time")

// These count in all middlewares of the process.
var (
	bodyMemory      atomic.Int64 // bytes of the larger request bodies in memory
	waitingRequests atomic.Int64 // requests that wait for another attempt
)

// space bounds what requests take up together: the bytes of their bodies in memory or in temporary files, or places to
// wait.
type space struct {
	limit int64
	used  *atomic.Int64 // shared with others, each with its own limit
}

// take reports whether there is room for so many more. A nil space has no bound.
func (s *space) take(n int64) bool {
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
func (s *space) give(n int64) {
	if s != nil && n != 0 {
		s.used.Add(-n)
	}
}
