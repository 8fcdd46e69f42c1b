package redisstore

import (
	"context"

	"github.com/redis/rueidis"

	"github.com/everonce/everonce/driver"
)

func (s *Store) identityKey() string { return s.prefix + "identity" }

// KeepIdentity implements [driver.IdentityKeeper].
func (s *Store) KeepIdentity(ctx context.Context, check [32]byte) error {
	res, err := s.set(ctx, s.identityKey(), func(b rueidis.Builder) rueidis.Completed {
		return b.Arbitrary("SET").Keys(s.identityKey()).Args(string(check[:]), "NX", "GET").Build()
	})
	if err != nil {
		return failed("keep identity", err)
	}
	kept, err := res.ToString()
	switch {
	case rueidis.IsRedisNil(err): // it is kept now
		return nil
	case err != nil:
		return failed("keep identity", err)
	case kept != string(check[:]):
		return failed("keep identity", driver.ErrIdentity)
	}
	return nil
}

// ReadIdentity implements [driver.IdentityReader].
func (s *Store) ReadIdentity(ctx context.Context) (check [32]byte, bound bool, err error) {
	kept, err := s.client.Do(ctx, s.client.B().Arbitrary("GET").Keys(s.identityKey()).Build()).ToString()
	switch {
	case rueidis.IsRedisNil(err):
		return check, false, nil
	case err != nil:
		return check, false, failed("read identity", err)
	case len(kept) != len(check):
		return check, false, failed("read identity", driver.ErrCorruptRecord)
	}
	copy(check[:], kept)
	return check, true, nil
}
