package sqlstore

import (
	"context"
	"errors"

	"github.com/everonce/everonce/internal/sqldb"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/transition"
)

// SaveStep writes a step: see [driver.Store].
func (s *Store[Tx]) SaveStep(ctx context.Context, req driver.SaveStepRequest) (driver.SaveStepResult, error) {
	s.lease.see(req.Lease)
	return driver.SaveStepResult{}, s.write(ctx, "save step", func(ctx context.Context, c sqldb.Conn) error {
		for try := range swapTries {
			calls := s.saveStepCalls(s.text.SaveStep, s.text.PutStep, &req)
			calls[0].Must = true
			if err := c.Send(ctx, calls...); !errors.Is(err, sqldb.ErrNothingWritten) {
				return err
			}
			if err := s.refuseStep(ctx, c, &req); !errors.Is(err, errBusyKey) {
				return err
			}
			if err := pauseBriefly(ctx, try); err != nil {
				return err
			}
		}
		return errBusyKey
	})
}

// saveStepCalls are the calls that write a step; the first checks the attempt.
func (s *Store[Tx]) saveStepCalls(save, put *sqldb.Statement, req *driver.SaveStepRequest) []*sqldb.Call {
	step, total := &req.Step, req.Lifetime.Total().Microseconds()
	var lease any
	if req.Lease > 0 {
		lease = req.Lease.Microseconds()
	}
	held := []any{req.ID[:], int64(req.Token), req.Nonce[:], lease, total, max(total, req.Lease.Microseconds()), step.Name}
	result := []any{
		int64(step.State), int64(step.Attempt),
		number(step.Result.Kind), text(step.Result.Codec), blob(step.Result.Data), blob(step.Result.Summary),
	}
	if put == nil {
		return []*sqldb.Call{s.call(save, append(held, result...)...)}
	}
	touch := s.call(save, held...)
	written := &sqldb.Call{Statement: put, Args: append([]any{req.ID[:], step.Name}, result...)}
	if s.dialect.Clock != nil { // one write, one time
		written.Args = append(written.Args, touch.Args[len(touch.Args)-1])
	}
	return []*sqldb.Call{touch, written}
}

// refuseStep says why a step was not written: [errBusyKey] where it could be by now.
func (s *Store[Tx]) refuseStep(ctx context.Context, c sqldb.Conn, req *driver.SaveStepRequest) error {
	var w row
	if err := s.load(ctx, c, &req.ID, &w); err != nil {
		return err
	}
	rec, err := w.record()
	if err != nil {
		return err
	}
	if _, err = transition.SaveStep(rec, *req, w.now); err == nil {
		err = errBusyKey
	}
	return err
}
