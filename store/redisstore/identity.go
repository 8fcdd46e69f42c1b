package redisstore

import (
	"context"

	"github.com/redis/rueidis"

	"github.com/everonce/everonce/driver"
)

func (s *Store) identityKey() string { return s.prefix + "identity" }

// KeepIdentity implements [driver.IdentityKeeper].
func (s *Store) KeepIdentity(ctx context.Context, req driver.KeepIdentityRequest) (res driver.KeepIdentityResult, err error) {
	mine := string(req.Check[:])
	answer, err := s.set(ctx, s.identityKey(), func(b rueidis.Builder) rueidis.Completed {
		return b.Arbitrary("SET").Keys(s.identityKey()).Args(mine, "NX", "GET").Build()
	})
	if err != nil {
		return res, wrapError("keep identity", err)
	}
	kept, err := answer.ToString()
	switch {
	case rueidis.IsRedisNil(err): // it is kept now
		return res, nil
	case err != nil:
		return res, wrapError("keep identity", err)
	case kept != mine:
		return res, wrapError("keep identity", driver.ErrIdentity)
	}
	return res, nil
}

// ReadIdentity implements [driver.IdentityReader].
func (s *Store) ReadIdentity(ctx context.Context, _ driver.ReadIdentityRequest) (res driver.ReadIdentityResult, err error) {
	kept, err := s.client.Do(ctx, s.client.B().Arbitrary("GET").Keys(s.identityKey()).Build()).ToString()
	switch {
	case rueidis.IsRedisNil(err):
		return res, nil
	case err != nil:
		return res, wrapError("read identity", err)
	case len(kept) != len(res.Check):
		return res, wrapError("read identity", driver.ErrCorruptRecord)
	}
	return driver.ReadIdentityResult{Bound: true, Check: [32]byte([]byte(kept))}, nil
}
