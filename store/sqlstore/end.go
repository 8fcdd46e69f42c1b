package sqlstore

import (
	"context"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/transition"
)

// Complete saves a result: see [everonce.Store].
func (s *Store[Tx]) Complete(ctx context.Context, req everonce.CompleteRequest) (everonce.CompleteResult, error) {
	err := s.write(ctx, "complete", func(ctx context.Context, c Conn) error {
		call := s.completeCall(&req)
		if err := c.Send(ctx, call); err != nil || call.Affected > 0 {
			return err
		}
		return s.decide(ctx, c, &req.ID, func(rec *everonce.Record, w *row) (*everonce.Record, error) {
			return transition.Complete(rec, req, w.now)
		})
	})
	return everonce.CompleteResult{}, err
}

func (s *Store[Tx]) completeCall(req *everonce.CompleteRequest) *Call {
	return s.call(s.text.Complete, req.ID[:], int64(req.Token), req.Nonce[:],
		int64(req.Result.Kind), text(req.Result.Codec), blob(req.Result.Data), blob(req.Result.Summary),
		req.Lifetime.Retention.Microseconds(), req.Lifetime.Total().Microseconds())
}

// Release ends an attempt without a result: see [everonce.Store].
func (s *Store[Tx]) Release(ctx context.Context, req everonce.ReleaseRequest) (everonce.ReleaseResult, error) {
	var res everonce.ReleaseResult // read only if the write returns nil: it may still be written otherwise
	err := s.write(ctx, "release", func(ctx context.Context, c Conn) error {
		if req.Token != 0 { // by nonce, more is to be looked at
			call := s.call(s.text.Release, req.ID[:], int64(req.Token), req.Nonce[:],
				int64(req.State), text(req.ErrorClass), text(req.Step),
				lifetimeMicros(req.Lifetime, req.State == everonce.StateReleased || req.ExpireUnsettled))
			if err := c.Send(ctx, call); err != nil || call.Affected > 0 {
				res = everonce.ReleaseResult{}
				return err
			}
		}
		return s.decide(ctx, c, &req.ID, func(rec *everonce.Record, w *row) (next *everonce.Record, err error) {
			next, res, err = transition.Release(rec, req, w.now)
			return next, err
		})
	})
	if err != nil {
		return everonce.ReleaseResult{}, err
	}
	return res, nil
}

// Renew extends a lease: see [everonce.Store].
func (s *Store[Tx]) Renew(ctx context.Context, req everonce.RenewRequest) (everonce.RenewResult, error) {
	s.lease.see(req.Lease)
	return everonce.RenewResult{}, s.write(ctx, "renew", func(ctx context.Context, c Conn) error { return s.renew(ctx, c, &req) })
}

func (s *Store[Tx]) renew(ctx context.Context, c Conn, req *everonce.RenewRequest) error {
	lease, total := req.Lease.Microseconds(), req.Lifetime.Total().Microseconds()
	call := s.call(s.text.Renew, req.ID[:], int64(req.Token), req.Nonce[:], lease, total, max(lease, total))
	if err := c.Send(ctx, call); err != nil || call.Affected > 0 {
		return err
	}
	return s.decide(ctx, c, &req.ID, func(rec *everonce.Record, w *row) (*everonce.Record, error) {
		return transition.Renew(rec, *req, w.now)
	})
}
