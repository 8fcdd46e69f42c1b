package proxy

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/everonce/everonce/driver"
)

const (
	// countEvery is the longest pause between two counts of records that are soon counted.
	countEvery = time.Minute
	// countShare is the part of the time that may go to counting: a store may have to read every record for it.
	countShare = 10
	// countTimeout bounds one count.
	countTimeout = 5 * time.Minute
)

// census counts the store's records again and again until ctx ends.
func (s *Server) census(ctx context.Context) {
	checker, ok := driver.PowerOf[driver.HealthChecker](s.store)
	if !ok {
		return
	}
	for {
		began := time.Now()
		s.count(ctx, checker)
		rest := max(countEvery/2+rand.N(countEvery/2), (countShare-1)*time.Since(began)) //nolint:gosec // jitter, so that proxies do not scan at the same time
		select {
		case <-time.After(rest):
		case <-ctx.Done():
			return
		}
	}
}

// count shows what the store has. After a count that failed nothing is shown: an old figure would keep an alert quiet.
func (s *Server) count(ctx context.Context, checker driver.HealthChecker) {
	one, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	h, err := checker.Health(one, driver.HealthRequest{})
	switch {
	case err == nil:
		s.metrics.Counted(h, nil)
		s.logNotes(h.Notes)
	case ctx.Err() == nil:
		s.metrics.Counted(h, err)
		s.log.Warn("the records could not be counted; trying again", "error", err)
	}
}

// logNotes logs what the store says of its durability, as far as it has not said so the last time.
func (s *Server) logNotes(notes []string) {
	for _, note := range notes {
		if !slices.Contains(s.noted, note) {
			s.log.Info("the store's durability", "note", note)
		}
	}
	s.noted = notes
}
