package inbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/internal/sqlqueue"
)

// Handler handles messages of some types.
type Handler[Tx any] struct {
	// Name distinguishes the handlers of one inbox. It is a part of the key under which the store remembers that the
	// handler has handled a message: do not change it. Default "handler". Required if there is more than one handler.
	Name string
	// Types are the types that it handles; nil is all.
	Types []string
	// Handle handles a message: its writes through tx commit with what becomes of the message. [everonce.AttemptFrom] finds
	// the operation in ctx. An error rolls back what this handler wrote, and the message is tried again; one of
	// [everonce.Permanent] sets it aside at once. Required.
	Handle func(ctx context.Context, tx Tx, m *consume.Message) error
}

// JSON makes a handler's function of one that takes the body as a T. A body that is no T is refused for good.
func JSON[T, Tx any](handle func(ctx context.Context, tx Tx, m *consume.Message, v T) error) func(ctx context.Context, tx Tx, m *consume.Message) error {
	return func(ctx context.Context, tx Tx, m *consume.Message) error {
		var v T
		if err := json.Unmarshal(m.Body, &v); err != nil {
			return everonce.Permanent("undecodable", errors.New("inbox: the body's JSON does not fit the payload"), nil)
		}
		return handle(ctx, tx, m, v)
	}
}

// WorkerOptions are the options of a worker. The zero value of each field is its default.
type WorkerOptions struct {
	// Concurrency is how many messages are handled at the same time. Default 8, and 1 on SQLite, which has one writer. Each
	// holds a connection: the pool needs some more, or leases cannot be renewed while all handlers run.
	Concurrency int
	// Lease is for how long a claim holds a message, unless it is renewed: after a worker was killed, its messages are
	// tried again that much later. Default 30 s. A handler may take as long as the receiver's Options.TxTimeout, 30 s by
	// default; on a database at repeatable read or above, a third of the lease, as a renewal meanwhile is a conflict.
	Lease time.Duration
	// Poll is the longest pause between two looks into the table; see outbox.RelayOptions. Default 1 s.
	Poll time.Duration
	// NoListen has the worker only poll. Otherwise it keeps a connection of the pool to
	// itself on PostgreSQL: the pool needs one more.
	NoListen bool
	// Retry says when a message that failed is tried again, and after how many retries it is set aside: by default 3.
	Retry consume.RetryPolicy
	// SkipFailed has messages with the order key of one that was set aside go on. By default they wait until somebody retries or
	// discards it.
	SkipFailed bool
	// Retention is how long the row of a handled message is kept. Default 24 h; negative removes it when it is handled.
	Retention time.Duration
	// DrainTimeout is how long Run lets handlers end after its context has ended. Default 15 s. What does not heed its
	// context, and a database that does not answer, may hold Run for longer.
	DrainTimeout time.Duration
	// Log gets what needs attention. Default [slog.Default].
	Log *slog.Logger
	// Context, if set, returns the context in which a message is handled and told to Observe: the trace that it carries on,
	// say.
	Context func(ctx context.Context, m *consume.Message) context.Context
	// Observe, if set, is called with what became of each message. It must not block.
	Observe func(ctx context.Context, m *consume.Message, v Report)
}

func (o *WorkerOptions) complete(oneWriter bool) (set WorkerOptions, err error) {
	if o != nil {
		set = *o
	}
	if set.Concurrency < 0 || set.Lease < 0 || set.Poll < 0 || set.Retry.Min < 0 || set.Retry.Max < 0 || set.DrainTimeout < 0 {
		return set, fmt.Errorf("inbox: %w: an option of the worker is negative", everonce.ErrInvalidArgument)
	}
	if set.Concurrency == 0 {
		if set.Concurrency = 8; oneWriter {
			set.Concurrency = 1
		}
	}
	set.Lease = cmp.Or(set.Lease, 30*time.Second)
	set.Poll = cmp.Or(set.Poll, time.Second)
	set.Retry = set.Retry.WithDefaults(3)
	set.Retention = cmp.Or(set.Retention, 24*time.Hour)
	set.DrainTimeout = cmp.Or(set.DrainTimeout, 15*time.Second)
	if set.Log == nil {
		set.Log = slog.Default()
	}
	if set.Lease < 100*time.Millisecond {
		return set, fmt.Errorf("inbox: %w: a lease of %v is too short (100 ms is the least)", everonce.ErrInvalidArgument, set.Lease)
	}
	return set, nil
}

// Worker handles the messages of an inbox. Several workers, in several processes, share the work.
type Worker[Tx any] struct {
	in       *Inbox[Tx]
	handlers []Handler[Tx]
	set      WorkerOptions
	types    []string // nil is all
	pool     sqlqueue.Pool[row]
}

// Worker returns a worker with one handler: see [Inbox.Workers].
func (in *Inbox[Tx]) Worker(handler Handler[Tx], opts *WorkerOptions) (*Worker[Tx], error) {
	return in.Workers([]Handler[Tx]{handler}, opts)
}

// Workers returns a worker with several handlers. A message is handled by each handler of its type, by each once: if one
// fails, the others are not run again. A message of a type that no handler has waits for a worker that has one; once it has
// been due for a minute, the worker logs its type, once. [backlog.Table.Kinds] counts such messages.
// The error wraps [everonce.ErrInvalidArgument].
func (in *Inbox[Tx]) Workers(handlers []Handler[Tx], opts *WorkerOptions) (*Worker[Tx], error) {
	set, err := opts.complete(in.table.DB.Dialect().Clock != nil)
	if err != nil {
		return nil, err
	}
	w := &Worker[Tx]{in: in, handlers: slices.Clone(handlers), set: set, types: []string{}}
	names := make(map[string]bool)
	for _, h := range handlers {
		switch {
		case h.Handle == nil:
			return nil, fmt.Errorf("inbox: %w: the handler %q has no function", everonce.ErrInvalidArgument, h.Name)
		case h.Name == "" && len(handlers) > 1, names[h.Name]:
			return nil, fmt.Errorf("inbox: %w: of several handlers each needs a name of its own (%q)", everonce.ErrInvalidArgument, h.Name)
		}
		names[h.Name] = true
		if h.Types == nil {
			w.types = nil
		} else if w.types != nil {
			w.types = append(w.types, h.Types...)
		}
	}
	if len(handlers) == 0 {
		return nil, fmt.Errorf("inbox: %w: there is no handler", everonce.ErrInvalidArgument)
	}
	slack := time.Duration(0)
	if in.opts.Priority != nil {
		slack = maxPriority * priorityStep
	}
	w.pool = sqlqueue.Pool[row]{
		Queue: in.table.Queue, Row: (*row).places, Size: set.Concurrency, Batch: set.Concurrency, Single: true, Lease: set.Lease, Poll: set.Poll,
		Channel: in.table.Queue.Channel(), Slack: slack, Lanes: func() (only, except []string) { return w.types, nil }, Work: w.work,
		DrainTimeout: set.DrainTimeout, Retention: set.Retention, Name: "inbox", Log: set.Log,
	}
	if set.NoListen {
		w.pool.Channel = ""
	}
	w.pool.Start()
	return w, nil
}

// Wake has the worker look for messages at once. On a database that wakes nobody by itself, call it after [Inbox.Receive].
func (w *Worker[Tx]) Wake() { w.pool.Wake() }

// Run handles messages until ctx ends, then lets handlers end for [WorkerOptions.DrainTimeout], and returns nil. It returns an
// error at once if the table is missing, or of another version ([everonce.ErrSchema]); later failures of the database are
// logged, and Run goes on. Call it once.
func (w *Worker[Tx]) Run(ctx context.Context) error {
	if err := w.in.table.Check(ctx, "worker"); err != nil && ctx.Err() == nil {
		return err
	}
	if w.types != nil {
		var watching sync.WaitGroup
		defer watching.Wait()
		watching.Go(func() { w.watch(ctx) })
	}
	w.pool.Run(ctx)
	return nil
}

// safely calls a handler, and returns a panic as an error.
func (w *Worker[Tx]) safely(handle func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			w.set.Log.Error("inbox: a handler panicked", "consumer", w.in.consumer, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("inbox: the handler panicked: %v", p)
		}
	}()
	return handle()
}
