package sqlstore

import (
	"context"

	"github.com/everonce/everonce/internal/sqldb"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/transition"
)

// Complete saves a result: see [driver.Store].
func (s *Store[Tx]) Complete(ctx context.Context, req driver.CompleteRequest) (driver.CompleteResult, error) {
	err := s.write(ctx, "complete", func(ctx context.Context, c sqldb.Conn) error {
		call := s.completeCall(&req)
		if err := c.Send(ctx, call); err != nil || call.Affected > 0 {
			return err
		}
		return s.decide(ctx, c, &req.ID, func(rec *driver.Record, w *row) (*driver.Record, error) {
			return transition.Complete(rec, req, w.now)
		})
	})
	return driver.CompleteResult{}, err
}

func (s *Store[Tx]) completeCall(req *driver.CompleteRequest) *sqldb.Call {
	return s.call(s.text.Complete, req.ID[:], int64(req.Token), req.Nonce[:],
		int64(req.Result.Kind), text(req.Result.Codec), blob(req.Result.Data), blob(req.Result.Summary),
		req.Lifetime.Retention.Microseconds(), req.Lifetime.Total().Microseconds())
}

// Release ends an attempt without a result: see [driver.Store].
func (s *Store[Tx]) Release(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseResult, error) {
	var res driver.ReleaseResult // read only if the write returns nil: it may still be written otherwise
	err := s.write(ctx, "release", func(ctx context.Context, c sqldb.Conn) error {
		if req.Token != 0 { // by nonce, more is to be looked at
			call := s.call(s.text.Release, req.ID[:], int64(req.Token), req.Nonce[:],
				int64(req.State), text(req.ErrorClass), text(req.Step),
				lifetimeMicros(req.Lifetime, req.State == driver.StateReleased || req.ExpireUnsettled))
			if err := c.Send(ctx, call); err != nil || call.Affected > 0 {
				res = driver.ReleaseResult{}
				return err
			}
		}
		return s.decide(ctx, c, &req.ID, func(rec *driver.Record, w *row) (next *driver.Record, err error) {
			next, res, err = transition.Release(rec, req, w.now)
			return next, err
		})
	})
	if err != nil {
		return driver.ReleaseResult{}, err
	}
	return res, nil
}

// Renew extends a lease: see [driver.Store].
func (s *Store[Tx]) Renew(ctx context.Context, req driver.RenewRequest) (driver.RenewResult, error) {
	s.lease.see(req.Lease)
	return driver.RenewResult{}, s.write(ctx, "renew", func(ctx context.Context, c sqldb.Conn) error { return s.renew(ctx, c, &req) })
}

func (s *Store[Tx]) renew(ctx context.Context, c sqldb.Conn, req *driver.RenewRequest) error {
	lease, total := req.Lease.Microseconds(), req.Lifetime.Total().Microseconds()
	call := s.call(s.text.Renew, req.ID[:], int64(req.Token), req.Nonce[:], lease, total, max(lease, total))
	if err := c.Send(ctx, call); err != nil || call.Affected > 0 {
		return err
	}
	return s.decide(ctx, c, &req.ID, func(rec *driver.Record, w *row) (*driver.Record, error) {
		return transition.Renew(rec, *req, w.now)
	})
}
