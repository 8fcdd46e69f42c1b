package redisstore

import (
	"context"
	"time"

	"github.com/redis/rueidis"

	"github.com/everonce/everonce/driver"
)

// look reads a saved result without a script. One that is so far from its end that no clock need be asked is a replay;
// all else a script has to judge.
func (s *Store) look(ctx context.Context, k *keys, id *driver.RecordID, told reading, rec *driver.Record, now *time.Time) (found bool, err error) {
	if told.stale {
		return false, nil
	}
	// Not the builder's own GET: a client that sends reads to replicas would send it to one that is behind.
	msg, err := s.client.Do(ctx, s.client.B().Arbitrary("GET").Keys(k.saved).Build()).ToMessage()
	if rueidis.IsRedisNil(err) {
		return false, nil
	}
	var data []byte
	if err == nil {
		data, err = saved(id, &msg, rec)
	}
	if err != nil {
		return false, wrapError("read", err)
	}
	if rec.Format > driver.FormatVersion || rec.State != driver.StateCompleted || !told.far(rec) {
		return false, nil
	}
	rec.Result.Data, *now = data, told.during(rec)
	return true, nil
}

// Get implements [driver.Store] with one call to the server. A brief Get is a plain read if there is a result to
// replay; otherwise it makes a second call. With Replicas or SyncLog it waits as a replay does, because it answers a
// duplicate.
func (s *Store) Get(ctx context.Context, req driver.GetRequest) (res driver.GetResult, err error) {
	c := call{script: getScript, keys: s.keys(&req.ID)}
	send := s.run
	if req.Brief {
		send = s.write // it writes nothing, and may find a result that no replica has yet
	}
	if req.Brief && !s.waits() {
		res.Found, err = s.look(ctx, &c.keys, &req.ID, s.clock.read(), &res.Record, &res.Now)
		switch {
		case err != nil:
			return driver.GetResult{}, err
		case res.Found:
			return res, nil
		}
	}
	res = driver.GetResult{}
	sent := time.Now()
	msg, err := send(ctx, &c)
	if err != nil {
		return res, wrapError("get", err)
	}
	if err = s.got(&req.ID, sent, &msg, &res); err != nil {
		return driver.GetResult{}, wrapError("get", err)
	}
	return res, nil
}

// got reads the answer of the script that reads.
func (s *Store) got(id *driver.RecordID, sent time.Time, msg *rueidis.RedisMessage, res *driver.GetResult) error {
	a, err := readAnswer(msg, 1)
	if err != nil {
		return err
	}
	now := a.number(0)
	if a.err != nil {
		return a.err
	}
	s.clock.saw(now, sent)
	res.Now = at(now)
	if len(a.parts) == 1 {
		return nil
	}
	res.Found = true
	data, err := a.text(id, 1, res.Now, &res.Record)
	if err != nil {
		return err
	}
	if res.Record.StateAt(res.Now) == driver.StateCompleted && res.Record.Format <= driver.FormatVersion {
		if len(a.parts) > 2 && !a.parts[2].IsNil() {
			res.Record.Result.Data = data
		} else {
			missing(&res.Record)
		}
	}
	return a.steps(3, &res.Record)
}
