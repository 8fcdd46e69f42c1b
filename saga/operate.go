package saga

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/backlog"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/internal/sqlqueue"
)

// An operator's orders are kept in the row, one per line: "abort", "skip NAME".
const orderAbort = "abort"

var errAborted = errors.New("an operator aborted the saga")

func aborted(orders string) bool { return ordered(orders, orderAbort) }

func skipped(orders, step string) bool { return ordered(orders, "skip "+step) }

func ordered(orders, order string) bool {
	for line := range strings.Lines(orders) {
		if strings.TrimSuffix(line, "\n") == order {
			return true
		}
	}
	return false
}

// Abort compensates a saga that has not ended. It takes effect at the saga's next run, which begins at once, or, if a
// runner has claimed the saga, when that runner releases it; if the runner ends the saga first, nothing changes.
// [everonce.ErrNotFound]: the saga does not exist, or has ended.
func (s *Sagas[Tx]) Abort(ctx context.Context, id string) error { return s.give(ctx, id, orderAbort) }

// Skip marks a step's compensation as done without running it, because an operator has done it by hand. The saga goes
// on at once. [everonce.ErrNotFound]: the saga does not exist, or has ended.
func (s *Sagas[Tx]) Skip(ctx context.Context, id, step string) error {
	if step == "" || strings.ContainsAny(step, "\n\x00") {
		return fmt.Errorf("saga: %w: the step's name is empty or not valid", everonce.ErrInvalidArgument)
	}
	return s.give(ctx, id, "skip "+step)
}

func (s *Sagas[Tx]) give(ctx context.Context, id, order string) error {
	var found int64 // not to be read after an error: it may still be written
	err := s.table.DB.Write(ctx, func(ctx context.Context, c sqldb.Conn) error {
		call := s.table.DB.Dialect().Call(s.order, id, order+"\n")
		err := c.Send(ctx, call)
		found = call.Affected
		return err
	})
	switch {
	case err != nil:
		return s.table.Failed("order", err)
	case found == 0:
		return fmt.Errorf("saga: %w: no running saga has this ID", everonce.ErrNotFound)
	}
	_, err = s.Backlog().Retry(ctx, backlog.Filter{ID: id})
	return err
}

// Saga is a saga as stored in the tables.
type Saga struct {
	backlog.Entry
	// Version is its definition's.
	Version int
	Status  Status
	// Input is the input as JSON. Cause is why the saga is, or was, compensated.
	Input []byte
	Cause string
	// Orders are the operators' orders, one per line.
	Orders string
	// Steps are its actions and compensations, in the order in which they began.
	Steps []StepStatus
}

// StepStatus is the state of an action or a compensation.
type StepStatus struct {
	Name         string
	Compensation bool
	// State is "open" (begun, outcome unknown), "done", "failed", or "not_done".
	State string
	// Output is the result of the action, as JSON. Error is why it failed.
	Output []byte
	Error  string
	// Tries is how often it was tried. Tries that ended with their process are not counted.
	Tries            int
	BeganAt, EndedAt time.Time
}

// Get returns a saga with its history. [everonce.ErrNotFound]: the saga does not exist. [everonce.ErrCorruptRecord]:
// the row cannot be read, and the saga holds the readable fields, without its steps.
func (s *Sagas[Tx]) Get(ctx context.Context, id string) (*Saga, error) {
	rows, err := sqlqueue.List(ctx, s.table.Queue, sqlqueue.Filter{ID: id, Limit: 1}, (*row).places)
	if err != nil {
		return nil, s.table.Failed("get", err)
	}
	entries, err := s.Backlog().List(ctx, backlog.Filter{ID: id, Limit: 1})
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 || len(entries) == 0 {
		return nil, fmt.Errorf("saga: %w: no saga with this ID", everonce.ErrNotFound)
	}
	r := &rows[0]
	w := &run[Tx]{row: r}
	saga := &Saga{Entry: entries[0], Status: Status(r.status), Input: r.input, Cause: r.cause, Orders: r.orders}
	saga.Version = versionOf(r.common.Lane)
	if err := w.read(); err != nil {
		return saga, err
	}
	key := everonce.Key{Scope: everonce.ScopeOf("saga", r.common.Group), ID: id}
	got, err := s.receiver.Store().Get(ctx, driver.GetRequest{ID: s.receiver.RecordID(key)})
	if err != nil {
		return nil, err
	}
	for i := range got.Record.Steps {
		rec := &got.Record.Steps[i]
		name, compensation := strings.CutPrefix(rec.Name, undo(""))
		status := StepStatus{Name: name, Compensation: compensation, Tries: w.tries.Steps[rec.Name], BeganAt: rec.BeganAt, EndedAt: rec.EndedAt}
		switch rec.State {
		case driver.StepOpen:
			status.State = "open"
		case driver.StepNotDone:
			status.State = "not_done"
		case driver.StepDone:
			if status.State, status.Output = "done", rec.Result.Data; rec.Result.Kind == driver.ResultFailure {
				status.State, status.Output, status.Error = "failed", nil, failureText(rec.Result.Data)
			}
		}
		saga.Steps = append(saga.Steps, status)
	}
	return saga, nil
}

// failureText returns the message of a saved failure.
func failureText(saved []byte) string {
	var failure everonce.PermanentError
	if json.Unmarshal(saved, &failure) != nil {
		return "unreadable"
	}
	return failure.Message
}
