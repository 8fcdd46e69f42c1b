package redisstore

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/everonce/everonce"
)

// Claim implements [everonce.Store]: one call of the server.
func (s *Store) Claim(ctx context.Context, req everonce.ClaimRequest) (res everonce.ClaimResult, err error) {
	keys := s.keys(&req.ID)
	if s.readFirst {
		if done, err := s.recall(ctx, &keys, &req, &res); done || err != nil {
			return res, err
		}
	}
	if len(req.Scope)+len(req.Name)+len(req.Owner)+len(req.Fingerprint.Alg) > maxTexts {
		return res, tooLong("claim")
	}
	f := fresh{
		nonce: &req.Nonce, state: everonce.StateClaimed, attempt: 1, lease: req.Lease, fingerprint: &req.Fingerprint,
		scope: req.Scope, name: req.Name, owner: req.Owner,
	}
	c := call{script: claimScript, keys: keys, n: 1} // what is absent costs nothing
	if req.Take != 0 || req.ExpireUnsettled {
		c.args[1], c.n = digit(req.Take), 2
	}
	if req.ExpireUnsettled {
		f.life = req.Lifetime.Total()
		c.args[2], c.n = micros(max(f.life, f.lease)), 3
	}
	var stack [512]byte
	c.args[0] = string(f.append(stack[:0]))
	sent := time.Now()
	msg, err := s.write(ctx, &c)
	if err != nil {
		return res, failed("claim", err)
	}
	if msg.IsInt64() { // there was no record
		now, err := msg.ToInt64()
		if err != nil {
			return res, failed("claim", errAnswer)
		}
		s.clock.saw(now, sent)
		res.Decision, res.Now = everonce.DecideClaimed, at(now)
		begun(&req, res.Now, &res.Record)
		return res, nil
	}
	if msg.IsString() {
		err = s.replayed(&req.ID, &msg, &res)
	} else {
		err = s.claimed(&req, sent, &msg, &res)
	}
	switch {
	case err != nil:
		err = failed("claim", err)
	case res.Decision == everonce.DecideEnded:
		err = failed("claim", everonce.ErrAttemptEnded)
	case res.Decision == everonce.DecideNewer:
		err = failed("claim", everonce.ErrNewerRecord)
	}
	return res, err
}

// begun is the record that a claim of a new key leaves: the script and this agree.
func begun(req *everonce.ClaimRequest, now time.Time, rec *everonce.Record) {
	*rec = everonce.Record{
		ID: req.ID, Scope: req.Scope, Name: req.Name, State: everonce.StateClaimed, Token: everonce.Token(now.UnixMicro()), Nonce: req.Nonce,
		Owner: req.Owner, Attempt: 1, LeaseUntil: now.Add(req.Lease).Truncate(time.Microsecond), Fingerprint: req.Fingerprint,
		Format: everonce.FormatVersion, CreatedAt: now, ClaimedAt: now, UpdatedAt: now,
	}
	if req.ExpireUnsettled {
		rec.PurgeAt = now.Add(req.Lifetime.Total()).Truncate(time.Microsecond)
	}
}

// replayed reads the answer of a claim that met a result which the script has judged. It does not say the time: that is some
// 5 % of such a call.
func (s *Store) replayed(id *everonce.RecordID, msg *rueidis.RedisMessage, res *everonce.ClaimResult) (err error) {
	res.Decision = everonce.DecideReplay
	data, err := saved(id, msg, &res.Record)
	if err != nil {
		return err
	}
	res.Record.Result.Data = data
	res.Now = at(max(s.clock.read().passed, res.Record.UpdatedAt.UnixMicro()))
	return nil
}

// claimed reads the answer of another claim that met a record.
func (s *Store) claimed(req *everonce.ClaimRequest, sent time.Time, msg *rueidis.RedisMessage, res *everonce.ClaimResult) error {
	a, err := readAnswer(msg, 2)
	if err != nil {
		return err
	}
	res.Decision, res.Now = everonce.Decision(a.number(0)), at(a.number(1)) //nolint:gosec // the script's own words
	if a.err != nil {
		return a.err
	}
	s.clock.saw(a.number(1), sent)
	if res.Decision == everonce.DecideAbsent || res.Decision == everonce.DecideNewer {
		return nil
	}
	if _, err := a.text(&req.ID, 2, res.Now, &res.Record); err != nil {
		return err
	}
	if res.Decision == everonce.DecideReplay { // of which there is a record alone: see replayed
		missing(&res.Record)
		return nil
	}
	return a.steps(3, &res.Record)
}

// recall answers a claim by a plain read of the saved result, if there is one.
func (s *Store) recall(ctx context.Context, k *keys, req *everonce.ClaimRequest, res *everonce.ClaimResult) (done bool, err error) {
	clock := s.clock.read()
	if clock.stale { // replays do not tell the time
		if err := s.readClock(ctx); err != nil {
			return false, failed("claim", err)
		}
		clock = s.clock.read()
	}
	if done, err = s.look(ctx, k, &req.ID, clock, &res.Record, &res.Now); !done || err != nil {
		*res = everonce.ClaimResult{}
		return false, err
	}
	res.Decision = everonce.DecideReplay
	if req.Fingerprint.Conflicts(res.Record.Fingerprint) {
		res.Decision = everonce.DecideMismatch
	}
	return true, nil
}

func digit[N ~uint8](n N) string { return strconv.Itoa(int(n)) }

func micros(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }
