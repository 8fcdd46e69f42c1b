package redisstore

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/everonce/everonce/driver"
)

// Claim implements [driver.Store] with one call to the server, and a second one if it finds a result within a second
// of its end.
func (s *Store) Claim(ctx context.Context, req driver.ClaimRequest) (res driver.ClaimResult, err error) {
	k := s.keys(&req.ID)
	if s.readFirst && !s.waits() { // a plain read may return a result that no replica has yet
		if done, err := s.recall(ctx, &k, &req, &res); done || err != nil {
			return res, err
		}
	}
	if len(req.Scope)+len(req.Name)+len(req.Owner)+len(req.Fingerprint.Alg) > maxTexts {
		return res, tooLong("claim")
	}
	f := fresh{
		nonce: &req.Nonce, state: driver.StateClaimed, attempt: 1, lease: req.Lease, fingerprint: &req.Fingerprint,
		scope: req.Scope, name: req.Name, owner: req.Owner,
	}
	c := call{script: claimScript, keys: k, n: 1} // what is absent costs nothing
	c.args[1] = digit(req.Take)
	if req.Take != 0 {
		c.n = 2
	}
	if req.ExpireUnsettled {
		f.life = req.Lifetime.Total()
		c.args[3], c.n = micros(max(f.life, f.lease)), 4
	}
	var stack [512]byte
	c.args[0] = string(f.append(stack[:0]))
	decided, err := s.sendClaim(ctx, &c, &req, &res)
	if err == nil && !decided {
		c.args[2], c.n = byTime, max(c.n, 3)
		_, err = s.sendClaim(ctx, &c, &req, &res)
	}
	switch {
	case err != nil:
		res = driver.ClaimResult{}
	case res.Decision == driver.DecideEnded:
		err = driver.ErrAttemptEnded
	case res.Decision == driver.DecideNewer:
		err = driver.ErrNewerRecord
	}
	return res, wrapError("claim", err)
}

// byTime asks the script to judge a result by the server's TIME.
const byTime = "1"

// sendClaim sends the script and reads its answer. It reports false where the script has found a result, and has not
// looked at its end, and that is near.
func (s *Store) sendClaim(ctx context.Context, c *call, req *driver.ClaimRequest, res *driver.ClaimResult) (decided bool, err error) {
	sent := time.Now()
	msg, err := s.write(ctx, c)
	switch {
	case err != nil:
		return true, err
	case msg.IsInt64(): // there was no record
		now, err := msg.ToInt64()
		if err != nil {
			return true, errAnswer
		}
		s.clock.saw(now, sent)
		res.Decision, res.Now = driver.DecideClaimed, at(now)
		begun(req, res.Now, &res.Record)
		return true, nil
	case msg.IsString():
		far, err := s.replayed(ctx, &req.ID, &msg, res)
		return far || c.args[2] == byTime, err
	}
	return true, s.claimed(req, sent, &msg, res)
}

// begun is the record that a claim of a new key leaves: the script and this agree.
func begun(req *driver.ClaimRequest, now time.Time, rec *driver.Record) {
	*rec = driver.Record{
		ID: req.ID, Scope: req.Scope, Name: req.Name, State: driver.StateClaimed, Token: driver.Token(now.UnixMicro()), Nonce: req.Nonce,
		Owner: req.Owner, Attempt: 1, LeaseUntil: now.Add(req.Lease).Truncate(time.Microsecond), Fingerprint: req.Fingerprint,
		Format: driver.FormatVersion, CreatedAt: now, ClaimedAt: now, UpdatedAt: now,
	}
	if req.ExpireUnsettled {
		rec.PurgeAt = now.Add(req.Lifetime.Total()).Truncate(time.Microsecond)
	}
}

// replayed reads the answer of a claim that found a result. The answer does not contain the time: that would be some 10
// % of such a call. replayed reports whether the result is far from its end.
func (s *Store) replayed(ctx context.Context, id *driver.RecordID, msg *rueidis.RedisMessage, res *driver.ClaimResult) (far bool, err error) {
	data, err := saved(id, msg, &res.Record)
	switch {
	case err != nil:
		return true, err
	case res.Record.State != driver.StateCompleted:
		return true, corrupt(id, "its result has another state")
	}
	res.Decision, res.Record.Result.Data = driver.DecideReplay, data
	told, _ := s.estimate(ctx) //nolint:errcheck // then it is stale, and nothing is far by it
	res.Now = told.during(&res.Record)
	return told.far(&res.Record), nil
}

// claimed reads the answer of another claim that found a record.
func (s *Store) claimed(req *driver.ClaimRequest, sent time.Time, msg *rueidis.RedisMessage, res *driver.ClaimResult) error {
	a, err := readAnswer(msg, 2)
	if err != nil {
		return err
	}
	res.Decision, res.Now = driver.Decision(a.number(0)), at(a.number(1)) //nolint:gosec // the script's own words
	if a.err != nil {
		return a.err
	}
	s.clock.saw(a.number(1), sent)
	if res.Decision == driver.DecideAbsent || res.Decision == driver.DecideNewer {
		res.Record = driver.Record{} // the call before may have found a result
		return nil
	}
	if _, err := a.text(&req.ID, 2, res.Now, &res.Record); err != nil {
		return err
	}
	if res.Decision == driver.DecideReplay { // of which there is a record alone: see replayed
		missing(&res.Record)
		return nil
	}
	return a.steps(3, &res.Record)
}

// recall answers a claim by a plain read of the saved result, if there is one.
func (s *Store) recall(ctx context.Context, k *keys, req *driver.ClaimRequest, res *driver.ClaimResult) (done bool, err error) {
	told, err := s.estimate(ctx)
	if err != nil {
		return false, wrapError("claim", err)
	}
	if done, err = s.look(ctx, k, &req.ID, told, &res.Record, &res.Now); !done || err != nil {
		*res = driver.ClaimResult{}
		return false, err
	}
	res.Decision = driver.DecideReplay
	if req.Fingerprint.Conflicts(res.Record.Fingerprint) {
		res.Decision = driver.DecideMismatch
	}
	return true, nil
}

func digit[N ~uint8](n N) string { return strconv.Itoa(int(n)) }

func micros(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }
