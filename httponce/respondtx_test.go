package httponce_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/internal/mapdb"
	"github.com/everonce/everonce/oncetest"
)

var errBug = errors.New("secret: column \"ssn\" does not exist")

// charges returns a handler that has an effect in its transaction, writes an answer where status is set, and
// returns an error.
func charges(status int, body string, err error) func(http.ResponseWriter, *http.Request, *mapdb.Tx) error {
	return func(w http.ResponseWriter, r *http.Request, tx *mapdb.Tx) error {
		if err := tx.Add("charge"); err != nil {
			return err
		}
		if status != 0 {
			answers(status, body)(w, r)
		}
		return err
	}
}

func transactionalOutcomes() []outcomeCase {
	paid := charges(201, "paid", nil)
	noMoney := got{status: 402, body: "no money", location: "/payments/1"}
	permanent := everonce.Permanent("no_funds", errors.New("the account is empty"), nil)
	tx := func(h func(http.ResponseWriter, *http.Request, *mapdb.Tx) error) setup { return setup{handleTx: h} }
	refused := func(mark string) got { return got{status: 422, problem: "refused", code: "no_funds", mark: mark} }
	lost := always(oncetest.FailAfter, oncetest.OpCommit)
	return []outcomeCase{
		{name: "done", outcome: everonce.Executed, setup: tx(paid), do: once, want: created, runs: 1, effects: 1},
		{name: "done before", outcome: everonce.Replayed, setup: tx(paid), do: twice, want: created.marked("true"), runs: 1, effects: 1},
		{name: "refused", outcome: everonce.Rejected, setup: tx(charges(402, "no money", nil)), do: once, want: noMoney, runs: 1},
		{name: "a bad request", outcome: everonce.Rejected, setup: tx(charges(400, "no", nil)), do: once, want: got{status: 400, body: "no", location: "/payments/1"}, runs: 1},
		{name: "refused before", outcome: everonce.Rejected, setup: tx(charges(402, "no money", nil)), do: twice, want: noMoney.marked("true"), runs: 1},
		{name: "permanent", outcome: everonce.Rejected, setup: tx(charges(0, "", permanent)), do: once, want: refused(""), runs: 1},
		{name: "permanent before", outcome: everonce.Rejected, setup: tx(charges(0, "", permanent)), do: twice, want: refused("true"), runs: 1},
		{name: "permanent, against the answer", outcome: everonce.Rejected, setup: tx(charges(201, "paid", permanent)), do: twice, want: refused("true"), runs: 1},
		{
			name: "permanent, with an answer that says so", outcome: everonce.Rejected, setup: tx(charges(503, "no money", permanent)), do: twice, runs: 1,
			want: got{status: 503, body: "no money", location: "/payments/1", mark: "true"},
		},
		{
			name: "permanent, of another operation", outcome: everonce.Failed, do: twice, runs: 2, want: noMoney, logged: "not recorded",
			setup: tx(charges(402, "no money", &everonce.Error{Outcome: everonce.NotRecorded, Sentinel: errors.New("not recorded"), Cause: permanent})),
		},
		{
			name: "permanent, by a code that begins like ours", outcome: everonce.Rejected, do: twice, runs: 1,
			want:  got{status: 422, problem: "refused", code: "http_600", mark: "true"},
			setup: tx(charges(0, "", everonce.Permanent("http_600", errors.New("the bank is slow"), nil))),
		},
		{
			name: "permanent, by a code like ours for what is no refusal", outcome: everonce.Rejected, do: twice, runs: 1,
			want:  got{status: 422, problem: "refused", code: "http_302", mark: "true"},
			setup: tx(charges(0, "", everonce.Permanent("http_302", errors.New("the bank has moved"), nil))),
		},
		{
			name: "permanent by a classifier", outcome: everonce.Rejected, do: twice, want: refused("true"), runs: 1,
			setup: setup{handleTx: charges(0, "", errBug), core: everonce.Options{Classify: func(error) error { return permanent }}},
		},
		{
			name: "unknown by its status", outcome: everonce.Failed, setup: tx(charges(500, "sorry", nil)), do: twice, runs: 2,
			want: got{status: 500, body: "sorry", location: "/payments/1"},
		},
		{name: "an error", outcome: everonce.Failed, setup: tx(charges(0, "", errBug)), do: twice, want: problemOf(503, "not-done", "1"), runs: 2, logged: "ssn"},
		{name: "an error after a success was written", outcome: everonce.Failed, setup: tx(charges(201, "paid", errBug)), do: twice, want: problemOf(503, "not-done", "1"), runs: 2, logged: "ssn"},
		{
			name: "an error after a failure was written", outcome: everonce.Failed, setup: tx(charges(404, "no such account", errBug)), do: twice, runs: 2, logged: "ssn",
			want: got{status: 404, body: "no such account", location: "/payments/1"},
		},
		{
			name: "not done by its own word", outcome: everonce.Failed, do: twice, runs: 2, want: created,
			setup: tx(func(w http.ResponseWriter, r *http.Request, tx *mapdb.Tx) error {
				httponce.NotDone(w)
				return paid(w, r, tx)
			}),
		},
		{
			name: "in progress", outcome: everonce.InProgress, setup: tx(paid), want: problemOf(409, "in-progress", "1"),
			do: func(svc *service) got {
				h, _, err := svc.db.Begin(context.Background(), driver.BeginRequest{Claim: &driver.ClaimRequest{ID: keyOf("k").RecordID(), Nonce: driver.NewNonce()}})
				if err != nil {
					svc.t.Fatal(err)
				}
				defer h.Rollback(context.Background())
				return svc.post("k")
			},
		},
		{
			name: "another body", outcome: everonce.Mismatch, setup: tx(paid), want: problemOf(422, "key-reused", ""), runs: 1, effects: 1,
			do: func(svc *service) got {
				svc.post("k")
				return svc.postBody("k", `{"amount":2}`)
			},
		},
		{name: "expired", outcome: everonce.Expired, setup: tx(paid), do: later, want: created.bodiless("expired"), runs: 1, effects: 1},
		{
			name: "elided", outcome: everonce.Elided, do: twice, want: created.bodiless("elided"), runs: 1, effects: 1,
			setup: setup{handleTx: paid, opts: httponce.Options{Route: httponce.Route{MaxAnswer: 2}}},
		},
		{name: "no store", outcome: everonce.StoreFailed, setup: tx(paid), do: faulty(everything), want: problemOf(503, "store-unavailable", "5"), logged: "outcome=store_failed"},
		{
			name: "the commit's answer was lost, and it had committed", outcome: everonce.Executed, setup: tx(paid), want: created, runs: 1, effects: 1,
			do: faulty(oncetest.At(oncetest.OpCommit, 1, oncetest.FailAfter)),
		},
		{
			name: "the commit's answer was lost, and it had not committed", outcome: everonce.Executed, setup: tx(paid), want: created, runs: 2, effects: 1,
			do: faulty(oncetest.At(oncetest.OpCommit, 1, oncetest.FailBefore)),
		},
		{
			name: "the commit's answer was lost, and cannot be resolved", outcome: everonce.Unknown, setup: tx(paid), want: problemOf(503, "commit-lost", "1"), runs: 1, effects: 1, logged: "outcome=unknown",
			do: faulty(oncetest.FirstOf(lost, func(c oncetest.Call) oncetest.Fault {
				if c.Op == oncetest.OpBegin && c.N > 1 {
					return oncetest.FailBefore
				}
				return oncetest.Pass
			})),
		},
		{
			name: "the retry finds out what became of a lost commit", outcome: everonce.Replayed, setup: tx(paid), want: created.marked("true"), runs: 1, effects: 1, logged: "outcome=unknown",
			do: func(svc *service) got {
				svc.fail(oncetest.FirstOf(lost, func(c oncetest.Call) oncetest.Fault {
					if c.Op == oncetest.OpBegin && c.N > 1 {
						return oncetest.FailBefore
					}
					return oncetest.Pass
				}))
				svc.post("k")
				svc.fail(nil)
				return svc.post("k")
			},
		},
		{
			name: "unknown by an attempt in guarded mode", outcome: everonce.Unknown, setup: tx(paid), want: problemOf(409, "outcome-unknown", ""), runs: 0, logged: "outcome=unknown",
			do: func(svc *service) got {
				claim := driver.ClaimRequest{
					ID: svc.recvTx.RecordID(keyOf("k")), Scope: keyOf("k").Scope, Name: "k", Nonce: driver.NewNonce(), Lease: time.Second, Lifetime: everonce.ForWeb(),
				}
				h, _, err := svc.db.Begin(svc.t.Context(), driver.BeginRequest{Claim: &claim})
				if err == nil {
					_, err = h.Commit(svc.t.Context(), driver.CommitRequest{})
				}
				if err != nil {
					svc.t.Fatal(err)
				}
				time.Sleep(time.Minute) // it died
				return svc.post("k")
			},
		},
		{
			name: "refused, and the refusal cannot be saved", outcome: everonce.StoreFailed, setup: tx(charges(402, "no money", nil)), want: problemOf(503, "store-unavailable", "5"), runs: 1, logged: "outcome=store_failed",
			do: faulty(func(c oncetest.Call) oncetest.Fault {
				if c.Op == oncetest.OpBegin && c.N > 1 {
					return oncetest.FailBefore
				}
				return oncetest.Pass
			}),
		},
		{
			name: "deadlocks without an end", outcome: everonce.Failed, setup: tx(charges(0, "", mapdb.ErrDeadlock)), do: once, want: problemOf(503, "not-done", "1"), runs: 11, logged: "not done",
		},
		{
			name: "one deadlock", outcome: everonce.Executed, do: once, want: created, runs: 2, effects: 1,
			setup: tx(func() func(http.ResponseWriter, *http.Request, *mapdb.Tx) error {
				first := true
				return func(w http.ResponseWriter, r *http.Request, tx *mapdb.Tx) error {
					if first {
						first = false
						w.Header().Set("X-First", "yes")
						return charges(500, "sorry", mapdb.ErrDeadlock)(w, r, tx)
					}
					if got := w.Header().Get("X-First"); got != "" {
						return errors.New("the second run has the first one's headers")
					}
					return paid(w, r, tx)
				}
			}()),
		},
		{
			name: "too long", outcome: everonce.Failed, want: problemOf(503, "not-done", "1"), runs: 1, logged: "took too long", do: once,
			setup: tx(func(_ http.ResponseWriter, r *http.Request, tx *mapdb.Tx) error {
				<-r.Context().Done()
				return context.Cause(r.Context())
			}),
		},
		{
			name: "gone before it began", outcome: everonce.Failed, setup: tx(paid), want: problemOf(503, "not-done", "1"),
			do: func(svc *service) got {
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				return svc.with(ctx, "k", "{}")
			},
		},
	}
}

// Each outcome of the core, in transactional mode, has one answer, and leaves in the database what it says.
func TestTransactionalOutcomes(t *testing.T) {
	for _, c := range transactionalOutcomes() {
		t.Run(c.name, func(t *testing.T) { synctest.Test(t, c.run) })
	}
}

// The tables of both modes leave no outcome out, but for those that a mode does not have.
func TestEveryOutcomeHasAnAnswer(t *testing.T) {
	for mode, m := range map[string]struct {
		cases   []outcomeCase
		without map[everonce.Outcome]bool
	}{
		"guarded": {append(guardedOutcomes(), lostLeases()...), map[everonce.Outcome]bool{
			everonce.Invalid: true, // no key and no option is: only one that is protected twice, TestProtectedInsideOfAnother
		}},
		"transactional": {transactionalOutcomes(), map[everonce.Outcome]bool{
			everonce.NotRecorded: true, everonce.LeaseLost: true, // effect and record commit together
			everonce.Invalid: true, // as in guarded mode
		}},
	} {
		seen := map[everonce.Outcome]bool{}
		for _, c := range m.cases {
			seen[c.outcome] = true
		}
		for o := everonce.Executed; o.String() != "none"; o++ {
			if !seen[o] && !m.without[o] {
				t.Errorf("%s: no case ends with %v", mode, o)
			}
		}
	}
}

// A refusal that is too large to be kept in one record is elided, as there is no transaction that its pieces could be
// in: a repetition gets no half of it.
func TestALargeRefusalInATransactionIsElided(t *testing.T) {
	text := noise(300 << 10)
	svc := newService(t, setup{handleTx: charges(409, text, nil)})
	if g := svc.post("k"); g.status != 409 || g.body != text {
		t.Errorf("the first got %d and %d bytes", g.status, len(g.body))
	}
	if g := svc.post("k"); g.status != 409 || g.body != "" || g.mark != "elided" {
		t.Errorf("a repetition got %d, marked %q, and %d bytes", g.status, g.mark, len(g.body))
	}
}

// An answer that is larger than what is kept of one is held until the commit, too: nothing of it is sent where that
// fails.
func TestALargeAnswerWaitsForTheCommit(t *testing.T) {
	text := strings.Repeat("x", 100)
	for _, err := range []error{nil, errBug} {
		svc := newService(t, setup{opts: httponce.Options{Route: httponce.Route{MaxAnswer: 10}}, handleTx: charges(201, text, err)})
		switch g := svc.post("k"); {
		case err == nil && (g.status != 201 || g.body != text):
			t.Errorf("it got %+v", g)
		case err != nil && (g.status != 503 || g.problem != "not-done"):
			t.Errorf("of what was rolled back it got %+v", g)
		}
	}
}
