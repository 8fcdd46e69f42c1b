package httponce_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/oncetest"
)

// outcomeCase is one outcome of the core, and the client's answer for it. do sends the requests that lead there; its
// last answer is checked.
type outcomeCase struct {
	name    string
	outcome everonce.Outcome
	setup   setup
	do      func(*service) got
	want    got // status, body, mark, location, retryAfter, problem, code
	runs    int // how often the handler was called
	effects int // in transactional mode: what is committed
	logged  string
}

// once and twice send one operation.
func once(svc *service) got { return svc.post("k") }

func twice(svc *service) got {
	svc.post("k")
	return svc.post("k")
}

// faulty sends one operation to a store that fails like that.
func faulty(plan oncetest.Plan) func(*service) got {
	return func(svc *service) got {
		svc.fail(plan)
		return svc.post("k")
	}
}

// later sends a second time, when the result's retention is over.
func later(svc *service) got {
	svc.post("k")
	time.Sleep(25 * time.Hour)
	return svc.post("k")
}

func problemOf(status int, name, retryAfter string) got {
	return got{status: status, problem: name, retryAfter: retryAfter}
}

var created = got{status: http.StatusCreated, body: "paid", location: "/payments/1"}

func (g got) marked(mark string) got {
	return got{status: g.status, body: g.body, location: g.location, mark: mark}
}

func (g got) bodiless(mark string) got {
	return got{status: g.status, location: g.location, mark: mark}
}

func guardedOutcomes() []outcomeCase {
	paid, refused, broken, limited := answers(201, "paid"), answers(402, "no money"), answers(500, "sorry"), answers(429, "slow down")
	noMoney := got{status: 402, body: "no money", location: "/payments/1"}
	return []outcomeCase{
		{name: "done", outcome: everonce.Executed, setup: setup{handle: paid}, do: once, want: created, runs: 1},
		{name: "done before", outcome: everonce.Replayed, setup: setup{handle: paid}, do: twice, want: created.marked("true"), runs: 1},
		{name: "refused", outcome: everonce.Rejected, setup: setup{handle: refused}, do: once, want: noMoney, runs: 1},
		{name: "refused before", outcome: everonce.Rejected, setup: setup{handle: refused}, do: twice, want: noMoney.marked("true"), runs: 1},
		{
			name: "refused by a classifier, first", outcome: everonce.Rejected, do: once, want: got{status: 422, problem: "refused", code: "broken"}, runs: 1,
			setup: setup{handle: broken, core: everonce.Options{Classify: func(err error) error { return everonce.Permanent("broken", err, nil) }}},
		},
		{
			name: "refused by a classifier, again", outcome: everonce.Rejected, do: twice, want: got{status: 422, problem: "refused", code: "broken", mark: "true"}, runs: 1,
			setup: setup{handle: broken, core: everonce.Options{Classify: func(err error) error { return everonce.Permanent("broken", err, nil) }}},
		},
		{
			name: "refused, and too long to be kept", outcome: everonce.Rejected, do: twice, want: noMoney.bodiless("elided"), runs: 1,
			setup: setup{handle: refused, opts: httponce.Options{Route: httponce.Route{MaxAnswer: 2}}},
		},
		{
			name: "refused, and the core keeps less", outcome: everonce.Rejected, do: twice, want: got{status: 402, mark: "elided"}, runs: 1,
			setup: setup{handle: refused, core: everonce.Options{MaxResult: 2}},
		},
		{name: "released", outcome: everonce.Failed, setup: setup{handle: limited}, do: twice, want: got{status: 429, body: "slow down", location: "/payments/1"}, runs: 2},
		{
			name: "unknown, run again", outcome: everonce.Failed, setup: setup{handle: broken, policy: everonce.Reexecute}, do: twice,
			want: got{status: 500, body: "sorry", location: "/payments/1"}, runs: 2,
		},
		{
			name: "released, and the store does not take it", outcome: everonce.Failed, setup: setup{handle: limited}, do: faulty(always(oncetest.FailBefore, oncetest.OpRelease)),
			want: got{status: 429, body: "slow down", location: "/payments/1"}, runs: 1, logged: "could not be released",
		},
		{
			name: "gone before it began", outcome: everonce.Failed, setup: setup{handle: paid}, want: problemOf(503, "not-done", "1"), runs: 0,
			do: func(svc *service) got {
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				return svc.with(ctx, "k", "{}")
			},
		},
		{
			name: "in progress", outcome: everonce.InProgress, setup: setup{handle: paid}, want: problemOf(409, "in-progress", "1"), runs: 0,
			do: func(svc *service) got {
				svc.fail(always(oncetest.FailBefore, oncetest.OpComplete, oncetest.OpRelease))
				svc.claim("k")
				return svc.post("k")
			},
		},
		{
			name: "in progress, and the receiver says when to come back", outcome: everonce.InProgress, want: problemOf(409, "in-progress", "7"), runs: 0,
			setup: setup{handle: paid, core: everonce.Options{RetryAfter: 7 * time.Second}},
			do: func(svc *service) got {
				svc.fail(always(oncetest.FailBefore, oncetest.OpComplete, oncetest.OpRelease))
				svc.claim("k")
				return svc.post("k")
			},
		},
		{
			name: "another body", outcome: everonce.Mismatch, setup: setup{handle: paid}, want: problemOf(422, "key-reused", ""), runs: 1,
			do: func(svc *service) got {
				svc.post("k")
				return svc.postBody("k", `{"amount":2}`)
			},
		},
		{name: "unknown", outcome: everonce.Unknown, setup: setup{handle: broken}, do: once, want: got{status: 500, body: "sorry", location: "/payments/1"}, runs: 1, logged: "outcome=unknown"},
		{name: "unknown before", outcome: everonce.Unknown, setup: setup{handle: broken}, do: twice, want: problemOf(409, "outcome-unknown", ""), runs: 1, logged: "outcome=unknown"},
		{name: "expired", outcome: everonce.Expired, setup: setup{handle: paid}, do: later, want: created.bodiless("expired"), runs: 1},
		{name: "a bad request", outcome: everonce.Rejected, setup: setup{handle: answers(400, "no")}, do: once, want: got{status: 400, body: "no", location: "/payments/1"}, runs: 1},
		{name: "refused, expired", outcome: everonce.Expired, setup: setup{handle: refused}, do: later, want: got{status: 402, mark: "expired"}, runs: 1},
		{
			name: "elided", outcome: everonce.Elided, do: twice, want: created.bodiless("elided"), runs: 1,
			setup: setup{handle: paid, opts: httponce.Options{Route: httponce.Route{MaxAnswer: 2}}},
		},
		{
			name: "not recorded", outcome: everonce.NotRecorded, setup: setup{handle: paid}, do: faulty(always(oncetest.FailBefore, oncetest.OpComplete)),
			want: created, runs: 1, logged: "outcome=not_recorded",
		},
		{
			name: "refused, not recorded", outcome: everonce.NotRecorded, setup: setup{handle: refused}, do: faulty(always(oncetest.FailBefore, oncetest.OpComplete)),
			want: noMoney, runs: 1, logged: "outcome=not_recorded",
		},
		{name: "no store", outcome: everonce.StoreFailed, setup: setup{handle: paid}, do: faulty(everything), want: problemOf(503, "store-unavailable", "5"), logged: "outcome=store_failed"},
		{
			name: "saved by another program", outcome: everonce.StoreFailed, setup: setup{handle: paid}, want: problemOf(503, "record-unreadable", "5"), logged: "cannot be decoded",
			do: func(svc *service) got {
				_, err := everonce.Do(context.Background(), svc.recv, keyOf("k"), func(context.Context, *everonce.Attempt) (string, error) { return "paid", nil })
				if err != nil {
					svc.t.Fatal(err)
				}
				return svc.post("k")
			},
		},
	}
}

// keyOf is the key of what a service's post sends.
func keyOf(id string) everonce.Key {
	return everonce.Key{Scope: everonce.ScopeOf("everybody", "POST", "/payments"), ID: id}
}

// claim claims a key and does not come back.
func (svc *service) claim(id string) {
	svc.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	_, err := everonce.Do(ctx, svc.recv, keyOf(id), func(context.Context, *everonce.Attempt) (string, error) {
		return "", everonce.NotDone(nil)
	})
	if err == nil {
		svc.t.Fatal("the release of a claim was recorded")
	}
}

// Each outcome of the core, in guarded mode, has one answer. That the list has them all is tested with the
// other mode's: TestEveryOutcomeHasAnAnswer.
func TestGuardedOutcomes(t *testing.T) {
	for _, c := range append(guardedOutcomes(), lostLeases()...) {
		t.Run(c.name, func(t *testing.T) { synctest.Test(t, c.run) })
	}
}

func (c *outcomeCase) run(t *testing.T) {
	svc := newService(t, c.setup)
	g := c.do(svc)
	want := c.want
	if want.problem != "" {
		want.body = g.body
	}
	have := g
	have.header = nil
	if have.status != want.status || have.body != want.body || have.mark != want.mark || have.location != want.location ||
		have.retryAfter != want.retryAfter || have.problem != want.problem || have.code != want.code {
		t.Errorf("the client got %+v, want %+v", have, want)
	}
	if want.problem == "refused" && !strings.Contains(g.body, `"detail":"`) {
		t.Errorf("a refusal says no more than %s", g.body)
	}
	if asks := strings.Contains(g.body, "that asks again"); want.problem == "outcome-unknown" && asks != (want.retryAfter != "") {
		t.Errorf("with a Retry-After of %q the client gets %s", want.retryAfter, g.body)
	}
	if _, marked := g.header["Idempotent-Replayed"]; marked != (want.mark != "") {
		t.Errorf("the client got the headers %v", g.header)
	}
	if n := svc.ran(); n != c.runs {
		t.Errorf("the handler was called %d times, want %d", n, c.runs)
	}
	last := svc.last()
	if last.Outcome != c.outcome || last.Status != c.want.status || last.Problem != problemTold(c.want) || last.Panicked || last.FailedOpen {
		t.Errorf("Observe got %+v, want the outcome %v", last, c.outcome)
	}
	if last.KeyHash == "" || last.Method != http.MethodPost || last.Route == "" {
		t.Errorf("Observe got %+v", last)
	}
	switch logged := svc.logs.String(); {
	case c.logged == "" && logged != "":
		t.Errorf("logged was %s", logged)
	case !strings.Contains(logged, c.logged):
		t.Errorf("logged was %q, want %q", logged, c.logged)
	}
	for line := range strings.Lines(svc.logs.String()) {
		for text, level := range loggedAt {
			if strings.Contains(line, `msg="httponce: `+text) && !strings.Contains(line, "level="+level+" ") {
				t.Errorf("at another level than %s: %s", level, line)
			}
		}
	}
	if svc.db != nil {
		if n := svc.db.Count("charge"); n != c.effects {
			t.Errorf("%d effects are committed, want %d", n, c.effects)
		}
	}
}

// loggedAt is the level of what a log has of an outcome: an error is what somebody has to look at.
var loggedAt = map[string]string{
	"not done": "ERROR", "the key could not be released": "WARN",
}

// problemTold is the problem that the event of an answer names: what the application refused is its own answer.
func problemTold(g got) string {
	if g.problem == "refused" {
		return ""
	}
	return g.problem
}

// lostLeases are attempts whose record was taken from them: what they answer is dropped, and what stands in
// the record is the answer (rule 11).
func lostLeases() []outcomeCase {
	taken := func(s everonce.Settlement) func(*service) got {
		return func(svc *service) got {
			s.Force = true
			svc.during = func() {
				if err := svc.recv.Settle(context.Background(), keyOf("k"), s); err != nil {
					svc.t.Errorf("Settle: %v", err)
				}
			}
			return svc.post("k")
		}
	}
	robbed := func(status int) setup { return setup{handle: answers(status, "mine")} }
	done := everonce.Settlement{Verdict: everonce.SettleDone, Value: httponce.Answer{Status: 201, Body: []byte("paid"), Header: http.Header{"Location": {"/payments/1"}}}}
	nothing := everonce.Settlement{Verdict: everonce.SettleNotDone}
	failure := everonce.Settlement{Verdict: everonce.SettleDone, Failure: &everonce.PermanentError{Code: "declined", Message: "the card was declined"}}
	bare := everonce.Settlement{Verdict: everonce.SettleDone}
	const log = "outcome=lease_lost"
	return []outcomeCase{
		{name: "lease lost, nothing in the record yet", outcome: everonce.LeaseLost, setup: robbed(200), do: taken(nothing), want: problemOf(409, "in-progress", "1"), runs: 1, logged: log},
		{name: "lease lost by what was refused", outcome: everonce.LeaseLost, setup: robbed(402), do: taken(nothing), want: problemOf(409, "in-progress", "1"), runs: 1, logged: log},
		{name: "lease lost by what is released", outcome: everonce.LeaseLost, setup: robbed(500), do: taken(nothing), want: problemOf(409, "in-progress", "1"), runs: 1, logged: log},
		{name: "lease lost, and another's answer", outcome: everonce.Replayed, setup: robbed(200), do: taken(done), want: created.marked("true"), runs: 1},
		{name: "lease lost by a refusal, and another's answer", outcome: everonce.Replayed, setup: robbed(402), do: taken(done), want: created.marked("true"), runs: 1},
		{
			name: "lease lost by a refusal, and another's refusal", outcome: everonce.Rejected, setup: robbed(402), do: taken(failure),
			want: got{status: 422, problem: "refused", code: "declined", mark: "true"}, runs: 1,
		},
		{name: "lease lost, and settled as done without an answer", outcome: everonce.Elided, setup: robbed(200), do: taken(bare), want: got{status: 200, mark: "elided"}, runs: 1},
	}
}
