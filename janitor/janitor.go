// Package janitor removes expired results and records from a store, and client sessions beside it.
package janitor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"time"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/panics"
	"github.com/everonce/everonce/internal/retry"
)

// Options configure a janitor. The zero value of each field is its default; negative values are errors.
type Options struct {
	// Every is the longest pause between two rounds; each pause is a random part of it, at least half. Default 1
	// minute.
	Every time.Duration
	// Batch is the largest number of records that one store call changes. A claim waits for one such call at most.
	// Default 500.
	Batch int
	// Rest is the pause between two batches of one round. Default 10 ms.
	Rest time.Duration
	// Timeout bounds one batch. Default 30 s.
	Timeout time.Duration
	// Sessions are purged too, in each round: a *sqlsession.Store. Report's counts are without them.
	Sessions Sessions
	// Report is called after every round with its counts, and with the error that ended it early, if any. If it
	// panics, that is logged ([slog.Default]) and changes nothing else.
	Report func(Result, error)
}

// Sessions is a store of client sessions, such as a *sqlsession.Store.
type Sessions interface {
	// Purge removes at most limit sessions whose lease is over, and returns how many.
	Purge(ctx context.Context, limit int) (removed int, err error)
}

// Result counts what a round removed.
type Result = driver.PurgeResult

// Janitor removes results whose retention is over, records that are no longer remembered, and Options.Sessions whose
// lease is over. Several processes may run one on the same store.
type Janitor struct {
	store driver.Store
	o     Options
}

// New returns a janitor for store. It makes no store call. opts may be nil. The error wraps
// [driver.ErrInvalidArgument].
func New(store driver.Store, opts *Options) (*Janitor, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if isNil(store) {
		return nil, fmt.Errorf("%w: janitor: the store is nil", driver.ErrInvalidArgument)
	}
	if o.Sessions != nil && isNil(o.Sessions) {
		return nil, fmt.Errorf("%w: janitor: Options.Sessions is a nil pointer", driver.ErrInvalidArgument)
	}
	if o.Every < 0 || o.Batch < 0 || o.Rest < 0 || o.Timeout < 0 {
		return nil, fmt.Errorf("%w: janitor: a field of Options is negative", driver.ErrInvalidArgument)
	}
	return &Janitor{store: store, o: withDefaults(o)}, nil
}

func withDefaults(o Options) Options {
	if o.Every == 0 {
		o.Every = time.Minute
	}
	if o.Batch == 0 {
		o.Batch = 500
	}
	if o.Rest == 0 {
		o.Rest = 10 * time.Millisecond
	}
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second
	}
	return o
}

// Run purges in rounds, the first one at once, until ctx ends, and then returns nil. A round that fails is reported
// and does not end Run: the next one makes up for it, and only disk space depends on it.
func (j *Janitor) Run(ctx context.Context) error {
	for {
		total, err := j.round(ctx)
		j.report(ctx, total, err)
		if retry.Pause(ctx, j.o.Every/2+rand.N(j.o.Every/2+1)) != nil { //nolint:gosec // jitter, so that processes do not purge in step
			return nil //nolint:nilerr // the end of ctx is the way to stop
		}
	}
}

func isNil(store any) bool {
	v := reflect.ValueOf(store)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

func (j *Janitor) report(ctx context.Context, total Result, err error) {
	if j.o.Report == nil {
		return
	}
	defer panics.Log(ctx, "janitor's Report", slog.Int("records", total.Records))
	j.o.Report(total, err)
}

// round purges batch by batch until nothing is left.
func (j *Janitor) round(ctx context.Context) (total Result, err error) {
	err = j.batches(ctx, func(ctx context.Context) (more bool, err error) {
		res, err := j.store.Purge(ctx, driver.PurgeRequest{Limit: j.o.Batch})
		total.Results += res.Results
		total.Records += res.Records
		return res.More, err
	})
	if j.o.Sessions != nil {
		sessionsErr := j.batches(ctx, func(ctx context.Context) (more bool, err error) {
			n, err := j.o.Sessions.Purge(ctx, j.o.Batch)
			return n == j.o.Batch, err
		})
		if err == nil {
			err = sessionsErr
		}
	}
	return total, err
}

// batches calls purge until it reports that no more is left, or ctx ends.
func (j *Janitor) batches(ctx context.Context, purge func(ctx context.Context) (more bool, err error)) error {
	for ctx.Err() == nil {
		one, cancel := context.WithTimeout(ctx, j.o.Timeout)
		more, err := purge(one)
		cancel()
		switch {
		case err == nil && (!more || retry.Pause(ctx, j.o.Rest) != nil), ctx.Err() != nil:
			return nil
		case err != nil && !errors.Is(err, driver.ErrStore): // the store does not wrap it itself
			return fmt.Errorf("%w: %w", driver.ErrStore, err)
		case err != nil:
			return err
		}
	}
	return nil
}
