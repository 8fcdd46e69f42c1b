package drivertest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/transition"
)

// machine drives one key of a store with generated calls, and knows what each must answer: from the
// pure functions of package transition, at the store's time, and from a memory of all that ever happened
// to the key. Time goes on while calls run, so a call is held to what is right at some time between a
// reading of the store's clock before it and one after it.
type machine struct {
	e   *env
	t   *rapid.T
	key everonce.Key
	// rec is the row as it must stand, gone by time or not; nil where there is certainly none.
	rec *driver.Record
	// unsure says that rec was written, and gone before it could be read: its dates are near the store's,
	// but not the store's.
	unsure bool
	// attempts are all claims that were sent, granted or not; a delayed packet may come from each.
	attempts []*attempt
	memory   memory
	log      []string
}

// call is one call of the store, as the machine compares it.
type call struct {
	what string
	// send sends it, and returns its answer in a comparable form.
	send func() (outcome string, err error)
	// at, if set, is the store's time that came with the answer, if one did.
	at func() time.Time
	// model is the answer and the next record (nil: unchanged) that a row and a time lead to.
	model func(rec *driver.Record, now time.Time) (next *driver.Record, outcome string)
}

func (m *machine) do(c call) {
	m.t.Helper()
	before := m.e.look(m.key.RecordID())
	got, err := c.send()
	if err != nil {
		m.fatalf("%s: %v", c.what, err)
	}
	after := m.e.look(m.key.RecordID())
	m.log = append(m.log, c.what+" → "+got)

	rows := []*driver.Record{m.rec}
	if m.rec != nil && m.rec.GoneAt(after.Now) {
		rows = append(rows, nil) // somebody may have removed it
	}
	var expected, differs string
	for _, row := range rows {
		times := m.times(before.Now, after)
		if c.at != nil && !after.Found && !c.at().IsZero() { // the record is gone by now, and its dates with it
			times = append([]time.Time{normalTime(c.at())}, times...)
		}
		for _, now := range times {
			next, want := c.model(row, now)
			unsure := m.unsure || next != nil
			if expected == "" {
				expected = want
			}
			if want != got {
				continue
			}
			if next == nil {
				next = row
			}
			d := m.differs(after, next)
			if d == "" {
				m.rec, m.unsure = m.copyOf(next, after), unsure && !after.Found
				m.recall(after)
				return
			}
			differs = d
		}
	}
	if differs != "" {
		m.fatalf("%s → %s, and then the record differs: %s", c.what, got, differs)
	}
	m.fatalf("%s → %s, want %s", c.what, got, expected)
}

// recall asks a store that can recall, too: it may know the result of a completed record, and nothing else.
func (m *machine) recall(after driver.GetResult) {
	m.t.Helper()
	s, can := driver.PowerOf[driver.Recaller](m.e.s)
	if !can {
		return
	}
	got, err := s.Recall(m.e.ctx, driver.RecallRequest{ID: m.key.RecordID()})
	done := after.Found && after.Record.StateAt(after.Now) == driver.StateCompleted
	switch {
	case err != nil:
		m.fatalf("Recall: %v", err)
	case got.Found && !done:
		m.fatalf("a record that is not completed is recalled")
	case !got.Found && done && m.e.h.Advance != nil: // else its retention may just have ended
		m.fatalf("a completed record is not recalled")
	case got.Found && (got.Fingerprint != after.Record.Fingerprint || !bytes.Equal(got.Result.Data, after.Record.Result.Data)):
		m.fatalf("another result, or fingerprint, is recalled")
	}
}

// times are the times at which the call may have been decided: when the record was written, if it was,
// or any other between two readings of the clock that are told apart by the record's dates.
func (m *machine) times(from time.Time, after driver.GetResult) []time.Time {
	var ts []time.Time
	if at := after.Record.UpdatedAt; after.Found && !at.Before(normalTime(from)) {
		ts = append(ts, at)
	}
	ts = append(ts, from, after.Now)
	if m.rec != nil {
		for _, at := range []time.Time{m.rec.LeaseUntil, m.rec.ResultUntil, m.rec.PurgeAt} {
			if at.After(from) && at.Before(after.Now) {
				ts = append(ts, at)
			}
		}
	}
	return ts
}

// differs compares what is read with the record that must stand. Tokens are not the model's: they must
// grow, which memory sees to.
func (m *machine) differs(after driver.GetResult, want *driver.Record) string {
	gone := want == nil || want.GoneAt(after.Now)
	switch {
	case gone && after.Found:
		return "it is found, want none"
	case !gone && !after.Found:
		return fmt.Sprintf("it is not found, want it %v", want.State)
	case gone:
		return ""
	}
	got, w := after.Record, *want
	w.Token = got.Token
	if m.unsure {
		got, w = dateless(normal(got, after.Now)), dateless(normal(w, after.Now))
	}
	return diff(got, w, after.Now)
}

// copyOf returns the row that the machine goes on with: the model's, with the store's token, and with its
// dates where the model could only guess them.
func (m *machine) copyOf(rec *driver.Record, after driver.GetResult) *driver.Record {
	if rec == nil {
		return nil
	}
	c := *rec
	switch {
	case after.Found && m.unsure:
		c = after.Record
	case after.Found:
		c.Token = after.Record.Token
	}
	return &c
}

// dateless is a record without its dates.
func dateless(r driver.Record) driver.Record {
	r.LeaseUntil, r.CreatedAt, r.ClaimedAt, r.UpdatedAt = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	r.CompletedAt, r.ResultUntil, r.PurgeAt, r.Previous.ClaimedAt = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	r.Steps = slices.Clone(r.Steps)
	for i := range r.Steps {
		r.Steps[i].BeganAt, r.Steps[i].EndedAt = time.Time{}, time.Time{}
	}
	return r
}

func (m *machine) fatalf(format string, args ...any) {
	m.t.Helper()
	for _, l := range m.log {
		m.t.Logf("%s", l)
	}
	m.t.Fatalf(format, args...)
}

// store draws the handle that a call goes through.
func (m *machine) store() driver.Store {
	if rapid.Bool().Draw(m.t, "peer") {
		return m.e.h.Peer
	}
	return m.e.s
}

func pick[T any](t *rapid.T, label string, from ...T) T {
	return rapid.SampledFrom(from).Draw(t, label)
}

func (m *machine) attempt() *attempt {
	return rapid.SampledFrom(m.attempts).Draw(m.t, "attempt")
}

func (m *machine) claim() {
	req := claimReq(m.key)
	if len(m.attempts) > 0 && rapid.IntRange(0, 3).Draw(m.t, "delayed") == 0 {
		req = m.attempt().req
	} else {
		req.Take = pick(m.t, "take", driver.TakeNone, driver.TakeNone, driver.TakeAbandoned, driver.TakeAbandoned, driver.TakeToSettle, driver.TakeForced)
		req.Fingerprint = pick(m.t, "fingerprint", fingerprintA, fingerprintA, fingerprintA, fingerprintB, otherAlg, driver.Fingerprint{})
		req.Lease = pick(m.t, "lease", short, long)
		req.Lifetime = m.lifetime()
		req.ExpireUnsettled = rapid.Bool().Draw(m.t, "expire")
		req.Owner = pick(m.t, "owner", "one", "two")
	}
	s := m.store()
	var res driver.ClaimResult
	m.do(call{
		what: fmt.Sprintf("Claim(take %d, %s, lease %v)", req.Take, req.Nonce.String()[:6], req.Lease),
		send: func() (_ string, err error) {
			res, err = s.Claim(m.e.ctx, req)
			if errors.Is(err, driver.ErrAttemptEnded) {
				return driver.DecideEnded.String(), nil
			}
			return res.Decision.String(), err
		},
		at: func() time.Time { return res.Now },
		model: func(rec *driver.Record, now time.Time) (*driver.Record, string) {
			next, want, _ := transition.Claim(rec, req, now) //nolint:errcheck // a refusal is a decision too
			if d := driver.Decide(rec, req, now); d != want.Decision {
				m.fatalf("drivertest: transition.Claim says %v, Decide %v", want.Decision, d)
			}
			return next, want.Decision.String()
		},
	})
	a := attemptOf(m.e, req, res)
	m.answered(a, res)
}

// answered compares the answer's record with the stored one, and remembers the claim.
func (m *machine) answered(a *attempt, res driver.ClaimResult) {
	m.t.Helper()
	a.rec.Nonce = a.req.Nonce
	m.attempts = append(m.attempts, a)
	if res.Decision == 0 || res.Decision == driver.DecideAbsent {
		return
	}
	ended := res.Decision == driver.DecideReplay || res.Decision == driver.DecideExpired
	if m.rec != nil && (ended || res.Decision == driver.DecideClaimed || res.Decision == driver.DecideAbandoned) {
		want := *m.rec
		if ended {
			want.Steps, res.Record.Steps = nil, nil
		}
		got := res.Record
		if m.unsure {
			got, want = dateless(normal(got, res.Now)), dateless(normal(want, res.Now))
		}
		if d := diff(got, want, res.Now); d != "" {
			m.fatalf("the answer's record differs: %s", d)
		}
	}
	if err := m.memory.decided(a.req, res); err != nil {
		m.fatalf("%v", err)
	}
}

func (m *machine) lifetime() driver.Lifetime {
	return pick(m.t, "lifetime", driver.Lifetime{Retention: short}, driver.Lifetime{Retention: short, Remember: long}, forLong, forLong)
}

func (m *machine) complete() {
	a, s := m.attempt(), m.store()
	req := a.completion(fmt.Sprint("result of ", a.req.Nonce))
	req.Lifetime = m.lifetime()
	before := m.e.now()
	m.write("Complete", a, func() error { _, err := s.Complete(m.e.ctx, req); return err },
		func(rec *driver.Record, now time.Time) (*driver.Record, error) {
			return transition.Complete(rec, req, now)
		},
		func() error { return m.memory.completed(req, before) })
}

func (m *machine) renew() {
	a, s := m.attempt(), m.store()
	req := a.renewal()
	req.Lease, req.Lifetime = pick(m.t, "lease", short, long), m.lifetime()
	m.write("Renew", a, func() error { _, err := s.Renew(m.e.ctx, req); return err },
		func(rec *driver.Record, now time.Time) (*driver.Record, error) {
			return transition.Renew(rec, req, now)
		},
		func() error { return m.memory.wrote(req.Token) })
}

func (m *machine) step() {
	a, s := m.attempt(), m.store()
	req := a.stepping(pick(m.t, "step", "mail", "hook", "metric"), pick(m.t, "state", driver.StepOpen, driver.StepDone, driver.StepNotDone))
	req.Lease, req.Lifetime = pick(m.t, "lease", 0, short, long), m.lifetime()
	m.write(fmt.Sprintf("SaveStep(%s, %v)", req.Step.Name, req.Step.State), a, func() error { _, err := s.SaveStep(m.e.ctx, req); return err },
		func(rec *driver.Record, now time.Time) (*driver.Record, error) {
			return transition.SaveStep(rec, req, now)
		},
		func() error { return m.memory.wrote(req.Token) })
}

// write does a call that is accepted or refused with ErrLeaseLost.
func (m *machine) write(what string, a *attempt, send func() error, model func(*driver.Record, time.Time) (*driver.Record, error), accepted func() error) {
	m.t.Helper()
	outcome := func(err error) string {
		if err == nil {
			return "accepted"
		}
		return "lease lost"
	}
	ok := false
	m.do(call{
		what: fmt.Sprintf("%s(%d, %s)", what, a.rec.Token, a.rec.Nonce.String()[:6]),
		send: func() (string, error) {
			err := send()
			ok = err == nil
			if err != nil && !errors.Is(err, driver.ErrLeaseLost) {
				return "", err
			}
			return outcome(err), nil
		},
		model: func(rec *driver.Record, now time.Time) (*driver.Record, string) {
			next, err := model(rec, now)
			return next, outcome(err)
		},
	})
	if ok {
		if err := accepted(); err != nil {
			m.fatalf("%s: %v", what, err)
		}
	}
}

func (m *machine) release() {
	a, s := m.attempt(), m.store()
	req := a.releasing(pick(m.t, "state", driver.StateReleased, driver.StateAbandoned))
	if rapid.IntRange(0, 2).Draw(m.t, "by nonce") == 0 {
		req.Token = 0
	}
	req.Step = pick(m.t, "step", "", "", "mail")
	req.ErrorClass = pick(m.t, "class", "timeout", "panic")
	req.Lifetime, req.ExpireUnsettled = m.lifetime(), rapid.Bool().Draw(m.t, "expire")
	outcome := func(res driver.ReleaseResult) string { return fmt.Sprintf("superseded %v", res.Superseded) }
	m.do(call{
		what: fmt.Sprintf("Release(%d, %s, %v)", req.Token, req.Nonce.String()[:6], req.State),
		send: func() (string, error) {
			res, err := s.Release(m.e.ctx, req)
			return outcome(res), err
		},
		model: func(rec *driver.Record, now time.Time) (*driver.Record, string) {
			next, res, _ := transition.Release(rec, req, now) //nolint:errcheck // it refuses nothing
			return next, outcome(res)
		},
	})
}

func (m *machine) purge() {
	s := m.store()
	gone := false
	m.do(call{
		what: "Purge",
		send: func() (string, error) {
			gone = m.rec != nil && m.rec.GoneAt(m.e.now())
			_, err := s.Purge(m.e.ctx, driver.PurgeRequest{Limit: 1000})
			return "", err
		},
		model: func(*driver.Record, time.Time) (*driver.Record, string) { return nil, "" },
	})
	if gone {
		m.rec = nil
	}
}

func (m *machine) pass() {
	m.e.pass(short)
	m.log = append(m.log, fmt.Sprintf("%v pass", short))
}

// run drives the key with a generated sequence of calls.
func (m *machine) run(length int) {
	actions := []func(){m.claim, m.claim, m.claim, m.complete, m.renew, m.release, m.release, m.step, m.purge, m.pass, m.pass}
	m.claim()
	for range rapid.IntRange(1, length).Draw(m.t, "calls") {
		rapid.SampledFrom(actions).Draw(m.t, "call")()
	}
	m.claim()
}
