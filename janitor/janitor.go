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

// Sessions are what has sessions whose lease can be over, such as a *sqlsession.Store.
type Sessions interface {
	// Purge removes some of them, at most limit, and returns how many.
	Purge(ctx context.Context, limit int) (removed int, err error)
}

// Result counts what a round removed.
type Result = driver.PurgeResult

// Start starts a janitor, which removes results whose retention is over, records that are no longer remembered, and
// Options.Sessions whose lease is over, until ctx ends. Several processes may run one on the same store. The channel is closed when the janitor has stopped. The
// error wraps [driver.ErrInvalidArgument].
//
// The next round makes up for one that fails: only disk space depends on it.
func Start(ctx context.Context, store driver.Store, opts *Options) (<-chan struct{}, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if isNil(store) || o.Sessions != nil && isNil(o.Sessions) {
		return nil, fmt.Errorf("%w: janitor: the store, or that of the sessions, is nil", driver.ErrInvalidArgument)
	}
	if o.Every < 0 || o.Batch < 0 || o.Rest < 0 || o.Timeout < 0 {
		return nil, fmt.Errorf("%w: janitor: no field of Options may be negative", driver.ErrInvalidArgument)
	}
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
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			total, err := o.round(ctx, store)
			o.report(ctx, total, err)
			if retry.Pause(ctx, o.Every/2+rand.N(o.Every/2+1)) != nil { //nolint:gosec // jitter, so that processes do not purge in step
				return
			}
		}
	}()
	return done, nil
}

func isNil(store any) bool {
	v := reflect.ValueOf(store)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

func (o *Options) report(ctx context.Context, total Result, err error) {
	if o.Report == nil {
		return
	}
	defer panics.Log(ctx, "janitor's Report", slog.Int("records", total.Records))
	o.Report(total, err)
}

// round purges batch by batch until nothing is left.
func (o *Options) round(ctx context.Context, store driver.Store) (total Result, err error) {
	err = o.batches(ctx, func(ctx context.Context) (more bool, err error) {
		res, err := store.Purge(ctx, driver.PurgeRequest{Limit: o.Batch})
		total.Results += res.Results
		total.Records += res.Records
		return res.More, err
	})
	if o.Sessions != nil {
		of := o.batches(ctx, func(ctx context.Context) (more bool, err error) {
			n, err := o.Sessions.Purge(ctx, o.Batch)
			return n == o.Batch, err
		})
		if err == nil {
			err = of
		}
	}
	return total, err
}

func (o *Options) batches(ctx context.Context, purge func(ctx context.Context) (more bool, err error)) error {
	for ctx.Err() == nil {
		one, cancel := context.WithTimeout(ctx, o.Timeout)
		more, err := purge(one)
		cancel()
		switch {
		case err == nil && (!more || retry.Pause(ctx, o.Rest) != nil), ctx.Err() != nil: // told to stop
			return nil
		case err != nil && !errors.Is(err, driver.ErrStore): // as of a store of somebody else's
			return fmt.Errorf("%w: %w", driver.ErrStore, err)
		case err != nil:
			return err
		}
	}
	return nil
}
