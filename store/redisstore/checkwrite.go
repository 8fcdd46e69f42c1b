package redisstore

import (
	"context"
	"crypto/rand"

	"github.com/redis/rueidis"
)

// CheckWrite implements [everonce.WriteChecker]: it sets a key that ends by itself in a second, and waits for it as a claim does
// (see [Options]). On a cluster it is another master each time.
func (s *Store) CheckWrite(ctx context.Context) error {
	key := s.prefix + "check:" + rand.Text()
	res, err := s.set(ctx, key, func(b rueidis.Builder) rueidis.Completed {
		return b.Arbitrary("SET").Keys(key).Args("", "PX", "1000").Build()
	})
	if err == nil {
		err = res.Error()
	}
	if err != nil {
		return failed("check write", err)
	}
	return nil
}
