package saga

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/internal/sqlqueue"
)

// RunnerOptions are the options of a runner. The zero value of each field is its default.
type RunnerOptions struct {
	// Concurrency is how many sagas are worked on at the same time. Default 16.
	Concurrency int
	// Lease is how long a claim holds a saga, unless it is renewed: after a runner was killed, another one goes on that
	// much later. Default 30 s.
	Lease time.Duration
	// Poll is the longest pause between two reads of the table. Default 1 s.
	Poll time.Duration
	// NoListen makes the runner only poll. Otherwise, on PostgreSQL, it keeps a connection of the pool for LISTEN: the
	// pool needs one more.
	NoListen bool
	// Lifetime is how long the store remembers a saga after its last write. Default [everonce.ForFinance].
	Lifetime everonce.Lifetime
	// Retention is how long the row of a saga that has ended is kept. Default 90 days; negative removes it at the end.
	Retention time.Duration
	// DrainTimeout is how long Run lets steps finish after its context has ended. Default 15 s. A step that ignores its
	// context, or a database that does not answer, may hold Run longer.
	DrainTimeout time.Duration
	// Log receives warnings and errors. Default [slog.Default].
	Log *slog.Logger
	// Observe, if set, is called each time a runner releases a saga. It must not block.
	Observe func(ctx context.Context, v Report)
}

// Report is how far a runner brought a saga.
type Report struct {
	// ID and Definition are the saga's; Version is its definition's.
	ID, Definition string
	Version        int
	// Status is the saga's status.
	Status Status
	// Waits reports whether it was set aside for an operator.
	Waits bool
	// After is the delay until it is tried again, or 0.
	After time.Duration
	// Err is why the run ended early, or why the saga was compensated.
	Err error
}

func (o *RunnerOptions) complete() (set RunnerOptions, err error) {
	if o != nil {
		set = *o
	}
	if set.Concurrency < 0 || set.Lease < 0 || set.Poll < 0 || set.DrainTimeout < 0 {
		return set, fmt.Errorf("saga: %w: an option of the runner is negative", everonce.ErrInvalidArgument)
	}
	set.Concurrency = cmp.Or(set.Concurrency, 16)
	set.Lease = cmp.Or(set.Lease, 30*time.Second)
	set.Poll = cmp.Or(set.Poll, time.Second)
	set.Retention = cmp.Or(set.Retention, 90*24*time.Hour)
	set.DrainTimeout = cmp.Or(set.DrainTimeout, 15*time.Second)
	if set.Lifetime == (everonce.Lifetime{}) {
		set.Lifetime = everonce.ForFinance()
	}
	if set.Log == nil {
		set.Log = slog.Default()
	}
	if set.Lease < 100*time.Millisecond {
		return set, fmt.Errorf("saga: %w: a lease of %v is too short (100 ms is the least)", everonce.ErrInvalidArgument, set.Lease)
	}
	return set, nil
}

// Definitions is implemented by [Definition]; it lets [Sagas.Runner] take definitions with different inputs.
type Definitions[Tx any] interface {
	lane() string
	// advance runs a saga as far as possible.
	advance(ctx context.Context, a *everonce.Attempt, r *run[Tx]) error
	form() string
}

func (d *Definition[In, Tx]) form() string { return d.shape }

// Runner runs sagas. Several runners, in several processes, share the work.
type Runner[Tx any] struct {
	sagas       *Sagas[Tx]
	definitions map[string]Definitions[Tx]
	set         RunnerOptions
	call        everonce.CallOption
	pool        sqlqueue.Pool[row]
}

// row is a saga in the table.
type row struct {
	common                              sqlqueue.Row
	shape, status, cause, tries, orders string
	input                               []byte
}

func (r *row) places() (*sqlqueue.Row, []any) {
	return &r.common, []any{&r.shape, &r.status, &r.input, &r.cause, &r.tries, &r.orders}
}

// Runner returns a runner for sagas of these definitions; sagas of other definitions wait, visibly, for a runner that
// has theirs. The error wraps [everonce.ErrInvalidArgument].
func (s *Sagas[Tx]) Runner(opts *RunnerOptions, definitions ...Definitions[Tx]) (*Runner[Tx], error) {
	set, err := opts.complete()
	if err != nil {
		return nil, err
	}
	r := &Runner[Tx]{sagas: s, definitions: make(map[string]Definitions[Tx]), set: set}
	lanes := make([]string, 0, len(definitions))
	for _, d := range definitions {
		if d == nil || r.definitions[d.lane()] != nil {
			return nil, fmt.Errorf("saga: %w: a definition is nil, or given twice", everonce.ErrInvalidArgument)
		}
		r.definitions[d.lane()] = d
		lanes = append(lanes, d.lane())
	}
	if len(lanes) == 0 {
		return nil, fmt.Errorf("saga: %w: no definitions", everonce.ErrInvalidArgument)
	}
	if r.call, err = s.guarded.Prepare(everonce.EffectsInSteps(), everonce.WithLease(set.Lease), everonce.WithLifetime(set.Lifetime)); err != nil {
		return nil, fmt.Errorf("saga: %w", err)
	}
	r.pool = sqlqueue.Pool[row]{
		Queue: s.table.Queue, Row: (*row).places, Size: set.Concurrency, Batch: set.Concurrency, Single: true, Lease: set.Lease, Poll: set.Poll,
		Channel: s.table.Queue.Channel(), Lanes: func() (only, except []string) { return lanes, nil }, Work: r.work,
		DrainTimeout: set.DrainTimeout, Retention: set.Retention, Name: "saga", Log: set.Log,
	}
	if set.NoListen {
		r.pool.Channel = ""
	}
	r.pool.Start()
	return r, nil
}

// Wake makes the runner look for sagas at once. On a database without notifications, call it after a commit that
// started one.
func (r *Runner[Tx]) Wake() { r.pool.Wake() }

// Run runs sagas until ctx ends, then lets steps finish for [RunnerOptions.DrainTimeout], and returns nil. It returns
// an error at once if the tables are missing or have another version ([everonce.ErrSchema]). Later failures of the
// database are logged, and Run goes on. Call it once.
func (r *Runner[Tx]) Run(ctx context.Context) error {
	if err := r.sagas.table.Check(ctx, "runner"); err != nil && ctx.Err() == nil {
		return err
	}
	r.pool.Run(ctx)
	return nil
}
