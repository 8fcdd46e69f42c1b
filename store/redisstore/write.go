package redisstore

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/everonce/everonce"
)

// write runs a script that writes, and waits until what it wrote is as safe as the options demand.
func (s *Store) write(ctx context.Context, c *call) (rueidis.RedisMessage, error) {
	if s.waits() {
		kept := *c
		return s.writeAndWait(ctx, &kept)
	}
	return s.run(ctx, c)
}

// writeAndWait does so on a connection of its own, for WAIT is of the connection that wrote. A repeated call writes
// something too, so that it waits for it.
func (s *Store) writeAndWait(ctx context.Context, c *call) (msg rueidis.RedisMessage, err error) {
	err = s.client.Dedicated(func(conn rueidis.DedicatedClient) error {
		res := conn.DoMulti(ctx, c.byHash(conn.B()), s.waitCommand(conn.B()))
		if isNoScript(res[0].Error()) {
			res = conn.DoMulti(ctx, c.byText(conn.B()), s.waitCommand(conn.B()))
		}
		if msg, err = res[0].ToMessage(); err != nil {
			return judged(err)
		}
		return s.waited(res[1])
	})
	return msg, err
}

// set sends a command that writes and is no script, and waits likewise. The command's own error is in its result.
func (s *Store) set(ctx context.Context, build func(b rueidis.Builder) rueidis.Completed) (res rueidis.RedisResult, err error) {
	if !s.waits() {
		return s.client.Do(ctx, build(s.client.B())), nil
	}
	err = s.client.Dedicated(func(conn rueidis.DedicatedClient) error {
		both := conn.DoMulti(ctx, build(conn.B()), s.waitCommand(conn.B()))
		if res = both[0]; res.Error() != nil && !rueidis.IsRedisNil(res.Error()) {
			return nil
		}
		return s.waited(both[1])
	})
	return res, err
}

func (s *Store) waitCommand(b rueidis.Builder) rueidis.Completed {
	replicas, ms := strconv.Itoa(s.replicas), strconv.FormatInt(s.wait.Milliseconds(), 10)
	if s.syncLog {
		return b.Arbitrary("WAITAOF", "1", replicas, ms).Blocking()
	}
	return b.Arbitrary("WAIT", replicas, ms).Blocking()
}

// waited reads how many have what was written.
func (s *Store) waited(res rueidis.RedisResult) error {
	local, replicas := int64(1), int64(0)
	var err error
	if s.syncLog {
		var both []int64
		if both, err = res.AsIntSlice(); err == nil && len(both) == 2 {
			local, replicas = both[0], both[1]
		}
	} else {
		replicas, err = res.ToInt64()
	}
	switch {
	case err != nil:
		return err
	case local == 0:
		return fmt.Errorf("%w: the server did not sync within %v; the write stands", everonce.ErrStore, s.wait)
	case replicas < int64(s.replicas):
		return fmt.Errorf("%w: %d of %d replicas have the write after %v; it stands", everonce.ErrStore, replicas, s.replicas, s.wait)
	}
	return nil
}
