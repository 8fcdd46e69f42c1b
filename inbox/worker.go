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
	// Handle handles a message: its writes through tx commit with the message's new state. [everonce.AttemptFrom] finds
	// the operation in ctx. An error rolls back the writes of this handler, and the message is tried again; an error of
	// [everonce.Permanent] sets it aside at once. Required.
	Handle func(ctx context.Context, tx Tx, m *consume.Message) error
}

// JSON returns a handler function that decodes the body as a T. A message whose body does not fit is set aside.
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
	// Concurrency is how many messages are handled at the same time. Default 8, and 1 on SQLite, which has one writer.
	// Each handler holds a connection: the pool needs some more, or leases cannot be renewed while all handlers run.
	Concurrency int
	// Lease is how long a claim holds a message, unless it is renewed: after a worker was killed, its messages are tried
	// again that much later. Default 30 s. A handler may take as long as the receiver's Options.TxTimeout, 30 s by
	// default; on a database at repeatable read or above only a third of the lease, because a renewal in the meantime is a
	// conflict.
	Lease time.Duration
	// Poll is the longest pause between two reads of the table; see outbox.RelayOptions. Default 1 s.
	Poll time.Duration
	// NoListen makes the worker only poll. Otherwise, on PostgreSQL, it keeps a connection of the pool for LISTEN: the
	// pool needs one more.
	NoListen bool
	// Retry says when a message that failed is tried again, and after how many retries it is set aside: by default 3.
	Retry consume.RetryPolicy
	// SkipFailed lets messages go on after one with the same order key was set aside. By default they wait until an
	// operator retries or discards that message.
	SkipFailed bool
	// Retention is how long the row of a handled message is kept. Default 24 h; negative removes it when it is handled.
	Retention time.Duration
	// DrainTimeout is how long Run lets handlers finish after its context has ended. Default 15 s. A handler that ignores
	// its context, or a database that does not answer, may hold Run longer.
	DrainTimeout time.Duration
	// Log receives warnings and errors. Default [slog.Default].
	Log *slog.Logger
	// Context, if set, returns the context in which a message is handled, and which Observe gets: for example, one with
	// the message's trace.
	Context func(ctx context.Context, m *consume.Message) context.Context
	// Observe, if set, is called after each try of a message. It must not block.
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

// Workers returns a worker with several handlers. A message is handled once by each handler of its type: if one fails,
// the others are not run again. A message for whose type the worker has no handler waits for another worker; once it
// has been due for a minute, the worker logs its type, once. [backlog.Table.Kinds] counts such messages. The error
// wraps [everonce.ErrInvalidArgument].
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
			return nil, fmt.Errorf("inbox: %w: the handler %q has no function (set Handle)", everonce.ErrInvalidArgument, h.Name)
		case h.Name == "" && len(handlers) > 1, names[h.Name]:
			return nil, fmt.Errorf("inbox: %w: two handlers have the name %q (set a different Handler.Name for each)", everonce.ErrInvalidArgument, h.Name)
		}
		names[h.Name] = true
		if h.Types == nil {
			w.types = nil
		} else if w.types != nil {
			w.types = append(w.types, h.Types...)
		}
	}
	if len(handlers) == 0 {
		return nil, fmt.Errorf("inbox: %w: no handlers", everonce.ErrInvalidArgument)
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

// Wake makes the worker look for messages at once. On a database without notifications, call it after [Inbox.Receive].
func (w *Worker[Tx]) Wake() { w.pool.Wake() }

// Run handles messages until ctx ends, then lets handlers finish for [WorkerOptions.DrainTimeout], and returns nil. It
// returns an error at once if the table is missing or has another version ([everonce.ErrSchema]). Later failures of the
// database are logged, and Run goes on. Call it once.
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
