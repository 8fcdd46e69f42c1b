package redisstore

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/rueidis"
)

// write runs a script that writes, and waits until what it wrote is as safe as the options demand.
func (s *Store) write(ctx context.Context, c *call) (rueidis.RedisMessage, error) {
	if s.waits() {
		kept := *c
		return s.writeAndWait(ctx, &kept)
	}
	return s.run(ctx, c)
}

// writeAndWait runs the script on a separate connection, because WAIT covers only the writes of the connection that
// sends it.
func (s *Store) writeAndWait(ctx context.Context, c *call) (msg rueidis.RedisMessage, err error) {
	err = s.client.Dedicated(func(conn rueidis.DedicatedClient) error {
		res := s.doAndWait(ctx, conn, c.keys.record, c.byHash)
		if isNoScript(res[0].Error()) {
			res = s.doAndWait(ctx, conn, c.keys.record, c.byText)
		}
		if msg, err = res[0].ToMessage(); err != nil {
			return markCorrupt(err)
		}
		return s.waited(res[1:])
	})
	return msg, err
}

// set sends a command that writes and is not a script, and waits too. The command's own error is in its result.
func (s *Store) set(ctx context.Context, key string, build func(b rueidis.Builder) rueidis.Completed) (res rueidis.RedisResult, err error) {
	if !s.waits() {
		return s.client.Do(ctx, build(s.client.B())), nil
	}
	err = s.client.Dedicated(func(conn rueidis.DedicatedClient) error {
		all := s.doAndWait(ctx, conn, key, build)
		if res = all[0]; res.Error() != nil && !rueidis.IsRedisNil(res.Error()) {
			return nil
		}
		return s.waited(all[1:])
	})
	return res, err
}

// doAndWait sends a command and the waiting in one round trip. From Redis 7.2 on WAIT waits only for writes on the
// same connection: a value that was only read, or written before, may be another connection's latest write. So the key
// is always written.
func (s *Store) doAndWait(ctx context.Context, conn rueidis.DedicatedClient, key string, build func(b rueidis.Builder) rueidis.Completed) []rueidis.RedisResult {
	touch := conn.B().Eval().Script(touchScript.text).Numkeys(1).Key(key).Build()
	return conn.DoMulti(ctx, build(conn.B()), touch, s.waitCommand(conn.B()))
}

func (s *Store) waitCommand(b rueidis.Builder) rueidis.Completed {
	replicas, ms := strconv.Itoa(s.replicas), strconv.FormatInt(s.wait.Milliseconds(), 10)
	if s.syncLog {
		return b.Arbitrary("WAITAOF", "1", replicas, ms).Blocking()
	}
	return b.Arbitrary("WAIT", replicas, ms).Blocking()
}

// waited reads how many have what was written: the answers to the writing and to the waiting.
func (s *Store) waited(answers []rueidis.RedisResult) error {
	if err := answers[0].Error(); err != nil {
		return err
	}
	counts := []int64{1, 0} // in how many logs it is synced where it was written, and how many replicas have it
	var err error
	if s.syncLog {
		counts, err = answers[1].AsIntSlice()
	} else {
		counts[1], err = answers[1].ToInt64()
	}
	switch {
	case err != nil:
		return err
	case len(counts) != 2:
		return errAnswer
	case counts[0] == 0:
		return fmt.Errorf("the server did not sync within %v; the write was made", s.wait)
	case counts[1] < int64(s.replicas):
		return fmt.Errorf("%d of %d replicas have the write after %v; it was made", counts[1], s.replicas, s.wait)
	}
	return nil
}
