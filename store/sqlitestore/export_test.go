package sqlitestore

import (
	"time"

	"github.com/everonce/everonce/internal/sqldb"
)

// WithClock sets the store's clock, for tests.
func (o Options) WithClock(now func() time.Time) *Options {
	o.clock = now
	return &o
}

// Commits counts the commits of grouped writes.
func (s *Store) Commits() int64 { return s.db.group.commits.Load() }

// ClassOf is the class of an error.
func ClassOf(err error) sqldb.ErrorClass { return classify(err).Class }

// Path is the store's file.
func (s *Store) Path() string { return s.db.path }
