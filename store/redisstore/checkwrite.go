package redisstore

import (
	"context"
	"crypto/rand"

	"github.com/redis/rueidis"

	"github.com/everonce/everonce/driver"
)

// CheckWrite implements [driver.WriteChecker]. It sets a key that expires after a second, and waits for it as a claim
// does (see [Options]). On a cluster each call uses a random master.
func (s *Store) CheckWrite(ctx context.Context, _ driver.CheckWriteRequest) (res driver.CheckWriteResult, err error) {
	key := s.prefix + "check:" + rand.Text()
	answer, err := s.set(ctx, key, func(b rueidis.Builder) rueidis.Completed {
		return b.Arbitrary("SET").Keys(key).Args("", "PX", "1000").Build()
	})
	if err == nil {
		err = answer.Error()
	}
	if err != nil {
		return res, wrapError("check write", err)
	}
	return res, nil
}
