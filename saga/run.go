package saga

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/retry"
	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/internal/sqlqueue"
)

// Status is the status of a saga.
type Status string

// The statuses.
const (
	Running      Status = "running"      // its actions run, or are tried again
	Compensating Status = "compensating" // a step failed for good, or it was aborted: its compensations run
	Completed    Status = "completed"    // all actions were done
	Compensated  Status = "compensated"  // every step that may have had an effect was compensated
)

// tries is stored in a row by runs that ended in order. A run that was killed stores nothing.
type tries struct {
	Runs     int            `json:"runs"`
	Forgiven int            `json:"forgiven,omitempty"` // runs that died before an operator's retry
	Steps    map[string]int `json:"steps,omitempty"`
}

// maxCrashes is how many runs may die before a saga is set aside: a step that kills its process would otherwise run for
// ever.
const maxCrashes = 20

// run is one claim of a saga.
type run[Tx any] struct {
	runner *Runner[Tx]
	row    *row
	id     string

	mu     sync.Mutex
	tries  tries
	status Status
	cause  error         // why it is compensated
	waits  error         // why it is set aside
	after  time.Duration // delay until it goes on, or 0
	later  error         // why it is delayed
	ran    bool          // an attempt has begun
}

// errLater ends a run whose saga goes on later.
var errLater = errors.New("saga: it goes on later")

// work runs one claimed saga as far as possible.
func (r *Runner[Tx]) work(ctx context.Context, token int64, rows []row) {
	w := &run[Tx]{runner: r, row: &rows[0], id: rows[0].common.ID, status: Status(rows[0].status)}
	c := &w.row.common
	d := r.definitions[c.Lane]
	end := sqlqueue.End{Seq: c.Seq}
	err := w.read()
	switch {
	case err != nil:
		w.waits = everonce.Permanent("corrupt", err, nil)
	case d.form() != w.row.shape:
		w.waits = fmt.Errorf("saga: the steps of %q have changed since the saga began (give the new ones a new version)", c.Lane)
	default:
		err = w.execute(ctx, d)
	}
	if errors.Is(err, everonce.ErrLeaseLost) && w.waits == nil { // another runner has it
		r.observe(ctx, w, Report{Err: err})
		return
	}
	v := Report{Status: w.status, Err: w.cause}
	switch {
	case w.waits != nil:
		v.Waits, v.Err, end.How, end.Error = true, w.waits, sqlqueue.Block, sqlqueue.ErrorText(w.waits)
	case w.status == Completed || w.status == Compensated:
		if end.How = sqlqueue.Finish; r.set.Retention < 0 {
			end.How = sqlqueue.Drop
		}
	default:
		w.after = max(w.after, 10*time.Millisecond)
		v.After, v.Err = w.after, errors.Join(w.later, err)
		end.How, end.After, end.Error = sqlqueue.Again, w.after, sqlqueue.ErrorText(v.Err)
	}
	if err := w.end(ctx, token, end); err != nil {
		v.Err = errors.Join(v.Err, err)
	}
	if v.After > 0 {
		r.pool.Soon(v.After)
	}
	r.observe(ctx, w, v)
}

// read decodes the fields that earlier runs stored.
func (w *run[Tx]) read() error {
	if err := w.row.common.Readable(w.row.shape, w.row.status, w.row.cause, w.row.orders); err != nil {
		return fmt.Errorf("saga: %w", err)
	}
	if w.row.tries != "" && json.Unmarshal([]byte(w.row.tries), &w.tries) != nil {
		return fmt.Errorf("saga: %w: the tries cannot be decoded", everonce.ErrCorruptRecord)
	}
	if w.tries.Steps == nil {
		w.tries.Steps = make(map[string]int)
	}
	return nil
}

// execute runs the saga as an operation, whose steps are its actions and compensations.
func (w *run[Tx]) execute(ctx context.Context, d Definitions[Tx]) error {
	key := everonce.Key{Scope: everonce.ScopeOf("saga", w.row.common.Group), ID: w.id}
	res, err := everonce.Do(ctx, w.runner.sagas.guarded, key, func(ctx context.Context, a *everonce.Attempt) (Status, error) {
		w.ran = true
		if a.Number()-1 < w.tries.Runs {
			w.waits = errors.New("saga: the store has forgotten the steps (RunnerOptions.Lifetime is shorter than the saga has waited): find out what was done, then discard the saga")
			return "", everonce.NotDone(errLater)
		}
		if crashed := a.Number() - 1 - w.tries.Runs; crashed-w.tries.Forgiven > maxCrashes {
			w.waits = fmt.Errorf("saga: %d runners died running it, or lost its lease", crashed)
			w.tries.Forgiven = crashed // an operator's retry starts a new count
			return "", everonce.NotDone(errLater)
		}
		if err := d.advance(ctx, a, w); err != nil {
			return "", err
		}
		return w.status, nil
	}, w.runner.call)
	var known *everonce.Error
	switch {
	case errors.Is(err, errLater):
		return nil
	case err == nil:
		w.status = res.Value
	case errors.Is(err, everonce.ErrExpired), errors.Is(err, everonce.ErrResultElided): // it had ended
		w.status = Completed
	case errors.As(err, &known) && known.RetryAfter > 0: // another runner may still have it
		w.after = known.RetryAfter
	default:
		w.after = max(w.after, time.Second)
	}
	return err
}

// end stores how far the saga came, and releases it.
func (w *run[Tx]) end(ctx context.Context, token int64, end sqlqueue.End) error {
	w.mu.Lock()
	if w.ran {
		w.tries.Runs++
	}
	kept, err := json.Marshal(w.tries)
	w.mu.Unlock()
	if err != nil {
		return err
	}
	s := w.runner.sagas
	cause := w.row.cause
	if w.cause != nil {
		cause = sqlqueue.ErrorText(w.cause)
	}
	return sqlqueue.Surely(ctx, w.runner.set.Lease, func(ctx context.Context) error {
		var ordered int64
		err := s.table.DB.Write(ctx, func(ctx context.Context, c sqldb.Conn) error {
			d := s.table.DB.Dialect()
			calls := append([]*sqldb.Call{d.Call(s.note, w.row.common.Seq, token, string(w.status), cause, string(kept))}, s.table.Queue.Ends(token, end)...)
			reopened := d.Call(s.reopen, w.row.common.Seq, w.row.orders)
			err := c.Send(ctx, append(calls, reopened)...)
			ordered = reopened.Affected
			return err
		})
		if err == nil && ordered > 0 {
			w.runner.pool.Wake()
		}
		return err
	})
}

// observe logs sagas that need an operator, and calls Observe.
func (r *Runner[Tx]) observe(ctx context.Context, w *run[Tx], v Report) {
	v.ID, v.Definition = w.id, w.row.common.Group
	v.Version = versionOf(w.row.common.Lane)
	if v.Waits {
		r.set.Log.Error("saga: a saga waits for an operator (everonce saga show, retry, skip, abort)",
			"saga", v.ID, "definition", w.row.common.Lane, "status", v.Status, "error", v.Err)
	}
	if r.set.Observe != nil {
		r.set.Observe(ctx, v)
	}
}

// advance runs the remaining actions of a saga, or its compensations.
func (d *Definition[In, Tx]) advance(ctx context.Context, a *everonce.Attempt, w *run[Tx]) error {
	s := &execution[In, Tx]{run: w, definition: d, attempt: a, outputs: make(map[string]json.RawMessage)}
	if err := json.Unmarshal(w.row.input, &s.input); err != nil {
		w.waits = fmt.Errorf("saga: the input does not fit the definition: %w", err)
		return everonce.NotDone(errLater)
	}
	if aborted(w.row.orders) {
		w.cause = errAborted
	} else if err := s.forward(ctx); err != nil {
		return err
	}
	if w.cause == nil {
		w.status = Completed
		return nil
	}
	w.status = Compensating
	if err := s.compensateAll(ctx); err != nil {
		return err
	}
	w.status = Compensated
	return nil
}

// execution is one run of a saga's steps.
type execution[In, Tx any] struct {
	*run[Tx]
	definition *Definition[In, Tx]
	attempt    *everonce.Attempt
	input      In

	outputs map[string]json.RawMessage // by step; guarded by run.mu
}

// forward runs the actions, group by group, until one fails permanently: then the run has a cause.
func (s *execution[In, Tx]) forward(ctx context.Context) error {
	for _, rec := range s.attempt.Steps() {
		if rec.State == driver.StepDone && rec.Result.Kind == driver.ResultFailure { // an earlier run began to compensate, so no action may begin
			s.cause = fmt.Errorf("the step %q failed: %s", rec.Name, failureText(rec.Result.Data))
			return nil
		}
		if name, back := strings.CutPrefix(rec.Name, undo("")); back {
			s.cause = fmt.Errorf("an earlier run began to compensate the step %q", name)
			return nil
		}
	}
	steps := s.definition.steps
	for from := 0; from < len(steps); {
		to := from + 1
		for to < len(steps) && steps[to].Concurrent {
			to++
		}
		var acting sync.WaitGroup
		for i := from; i < to; i++ {
			acting.Go(func() { s.act(ctx, &steps[i]) })
		}
		acting.Wait()
		if s.cause != nil {
			return nil
		}
		if s.later != nil {
			return errLater
		}
		from = to
	}
	return nil
}

// Failure codes in a step's record.
const (
	codeExhausted = "saga_exhausted" // it had no retry left; the outcome is unknown
	codeRefused   = "saga_refused"   // the action reported that it did not happen
)

// act runs one action, unless it was done.
func (s *execution[In, Tx]) act(ctx context.Context, step *Step[In, Tx]) {
	name := step.Name
	var call *Call[In]
	var try int
	perform := func(ctx context.Context, do func(context.Context, *Call[In]) (any, error)) (json.RawMessage, error) {
		if call == nil { // once, even if the transaction is run again
			call, try = s.call(step, false)
		}
		one, cancel := context.WithTimeout(ctx, step.Timeout)
		defer cancel()
		out, err := safely(func() (any, error) { return do(one, call) })
		if err == nil {
			return s.encode(out)
		}
		var refusal *everonce.PermanentError
		if errors.As(err, &refusal) {
			code := codeRefused
			if step.ActionTx == nil && (try > 1 || s.crashed() > 0) { // an earlier try may have had its effect all the same
				code = codeExhausted
			}
			return nil, everonce.Permanent(code, err, nil)
		}
		if step.Retry.Limit >= 0 && try > step.Retry.Limit && ctx.Err() == nil { // stopping the runner does not fail the saga
			return nil, everonce.Permanent(codeExhausted, err, nil)
		}
		return nil, err
	}
	var out json.RawMessage
	var err error
	if step.ActionTx != nil {
		out, err = everonce.StepTx(ctx, s.attempt, s.runner.sagas.receiver, name, func(ctx context.Context, tx Tx) (json.RawMessage, error) {
			return perform(ctx, func(ctx context.Context, c *Call[In]) (any, error) { return step.ActionTx(ctx, tx, c) })
		})
	} else {
		out, err = everonce.Step(ctx, s.attempt, name, func(ctx context.Context) (json.RawMessage, error) { return perform(ctx, step.Action) })
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var failure *everonce.PermanentError
	switch {
	case err == nil:
		s.outputs[name] = out
	case errors.As(err, &failure) && !errors.Is(err, everonce.ErrStore): // otherwise it was not saved, and the next run would not find it
		if s.cause == nil {
			s.cause = fmt.Errorf("the step %q failed: %s", name, failure.Message)
		}
	default:
		s.postpone(step, name, err)
	}
}

// encode encodes an output. An output that cannot be stored fails the saga: the action has happened, and its result
// would be lost.
func (s *execution[In, Tx]) encode(out any) (json.RawMessage, error) {
	raw, err := json.Marshal(out)
	if limit := s.runner.sagas.receiver.Options().MaxResult; err == nil && len(raw) > limit {
		err = fmt.Errorf("the output has %d bytes; at most %d are possible", len(raw), limit)
	}
	if err != nil {
		return nil, everonce.Permanent(codeExhausted, err, nil)
	}
	return raw, nil
}

// postpone makes the saga go on later. The caller holds run.mu.
func (s *execution[In, Tx]) postpone(step *Step[In, Tx], name string, err error) {
	after := retry.Within(step.Retry.Min, step.Retry.Max, s.tries.Steps[name])
	if s.later == nil || after < s.after {
		s.after = after
	}
	s.later = errors.Join(s.later, err)
}

// call returns the next try of a step's action or compensation, and counts it.
func (s *execution[In, Tx]) call(step *Step[In, Tx], compensating bool) (*Call[In], int) {
	name := step.Name
	if compensating {
		name = undo(name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tries.Steps[name]++
	return &Call[In]{
		Saga: s.id, Step: step.Name, Input: s.input, Compensating: compensating, Key: s.attempt.DownstreamKey(name), Try: s.tries.Steps[name],
		outputs: func(step string) (json.RawMessage, bool) {
			s.mu.Lock()
			defer s.mu.Unlock()
			out, ok := s.outputs[step]
			return out, ok
		},
	}, s.tries.Steps[name]
}

// undo returns the name of the step that compensates another.
func undo(name string) string { return "undo:" + name }

// compensateAll runs the compensations of the steps that may have had an effect, last step first.
func (s *execution[In, Tx]) compensateAll(ctx context.Context) error {
	known := make(map[string]driver.StepRecord)
	for _, rec := range s.attempt.Steps() {
		known[rec.Name] = rec
		if s.outputs[rec.Name] == nil && rec.State == driver.StepDone && rec.Result.Kind == driver.ResultValue { // a run that only compensates has not read it
			s.outputs[rec.Name] = rec.Result.Data
		}
	}
	steps := s.definition.steps
	for i := len(steps) - 1; i >= 0; i-- {
		step := &steps[i]
		rec, begun := known[step.Name]
		if !begun || step.Final || s.hadNoEffect(step, &rec) {
			continue
		}
		if err := s.compensate(ctx, step); err != nil {
			return err
		}
	}
	return nil
}

// hadNoEffect reports whether a step certainly had no effect.
func (s *execution[In, Tx]) hadNoEffect(step *Step[In, Tx], rec *driver.StepRecord) bool {
	failed := rec.State == driver.StepDone && rec.Result.Kind == driver.ResultFailure
	switch {
	case step.ActionTx != nil: // without a commit it had no effect
		return rec.State != driver.StepDone || failed
	case failed:
		return string(rec.Result.Summary) == codeRefused
	}
	// The last try had no effect; an earlier one may have had.
	return rec.State == driver.StepNotDone && s.crashed() == 0 && s.tries.Steps[rec.Name] <= 1
}

// crashed returns how many earlier runs ended without storing anything.
func (s *execution[In, Tx]) crashed() int { return s.attempt.Number() - 1 - s.tries.Runs }

// compensate runs one compensation, unless it was done.
func (s *execution[In, Tx]) compensate(ctx context.Context, step *Step[In, Tx]) error {
	name := undo(step.Name)
	exhausted := false
	var call *Call[In]
	var try int
	perform := func(ctx context.Context, do func(context.Context, *Call[In]) error) (string, error) {
		if skipped(s.row.orders, step.Name) {
			return "skipped", nil
		}
		if call == nil {
			call, try = s.call(step, true)
		}
		exhausted = step.Retry.Limit >= 0 && try > step.Retry.Limit
		ctx, cancel := context.WithTimeout(ctx, step.Timeout)
		defer cancel()
		_, err := safely(func() (any, error) { return nil, do(ctx, call) })
		if err != nil { // never permanent: it is retried, then an operator decides
			return "", failing{err}
		}
		return "compensated", nil
	}
	var err error
	if step.CompensationTx != nil {
		_, err = everonce.StepTx(ctx, s.attempt, s.runner.sagas.receiver, name, func(ctx context.Context, tx Tx) (string, error) {
			return perform(ctx, func(ctx context.Context, c *Call[In]) error { return step.CompensationTx(ctx, tx, c) })
		})
	} else {
		_, err = everonce.Step(ctx, s.attempt, name, func(ctx context.Context) (string, error) { return perform(ctx, step.Compensation) })
	}
	if err == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.postpone(step, name, err)
	if exhausted {
		s.waits = fmt.Errorf("saga: the compensation of %q failed: %w", step.Name, err)
		s.tries.Steps[name] = 0 // an operator's retry starts a new count
	}
	return errLater
}

// failing hides from the core that a compensation's error is permanent.
type failing struct{ err error }

func (f failing) Error() string        { return f.err.Error() }
func (f failing) Is(target error) bool { return errors.Is(f.err, target) }
func (f failing) As(target any) bool   { return errors.As(f.err, target) }

// safely calls a step, and returns a panic as an error.
func safely(call func() (any, error)) (out any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("saga: the step panicked: %v\n%s", p, debug.Stack())
		}
	}()
	return call()
}
