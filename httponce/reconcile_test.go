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
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/oncetest"
)

// reconciled is a service whose handler does not say whether it paid, and which asks.
func reconciled(t *testing.T, ask func() (everonce.Verdict[httponce.Answer], error)) *service {
	t.Helper()
	return newService(t, setup{handle: answers(500, "sorry"), policy: everonce.Reconcile, opts: httponce.Options{Route: httponce.Route{
		Reconcile: func(context.Context, everonce.Abandoned) (everonce.Verdict[httponce.Answer], error) { return ask() },
	}}})
}

// A reconciler's answer is sent, marked, and saved for the next request: without a Set-Cookie, and as 200 if it names
// no status.
func TestReconciledAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		answer httponce.Answer
		want   got
	}{
		"whole":    {httponce.Answer{Status: 201, Body: []byte("paid"), Header: http.Header{"Location": {"/payments/1"}, "Set-Cookie": {"session=1"}, "set-cookie": {"session=1"}}}, created.marked("true")},
		"a status": {httponce.Answer{Status: 204}, got{status: 204, mark: "true"}},
		"nothing":  {httponce.Answer{}, got{status: 200, mark: "true"}},
		"a body":   {httponce.Answer{Body: []byte("paid")}, got{status: 200, body: "paid", mark: "true"}},
		"refused":  {httponce.Answer{Status: 402, Body: []byte("no money")}, got{status: 402, body: "no money", mark: "true"}}, // a value all the same
	} {
		t.Run(name, func(t *testing.T) {
			svc := reconciled(t, func() (everonce.Verdict[httponce.Answer], error) { return everonce.Happened(c.answer), nil })
			svc.post("k")
			for _, outcome := range []everonce.Outcome{everonce.Executed, everonce.Replayed} {
				g := svc.post("k")
				if g.status != c.want.status || g.body != c.want.body || g.location != c.want.location || g.mark != c.want.mark {
					t.Errorf("%v: it got %+v, want %+v", outcome, g, c.want)
				}
				for name := range g.header {
					if strings.EqualFold(name, "Set-Cookie") {
						t.Errorf("%v: it got a cookie: %v", outcome, g.header)
					}
				}
				if last := svc.last(); last.Outcome != outcome || last.Status != c.want.status {
					t.Errorf("Observe got %+v", last)
				}
			}
			if svc.ran() != 1 {
				t.Errorf("the handler was called %d times", svc.ran())
			}
		})
	}
}

// A length that is another body's, as it comes with the header of a gateway's answer, cuts no answer short.
func TestReconciledWithAnotherLength(t *testing.T) {
	theirs := http.Header{"Content-Length": {"99"}, "Location": {"/payments/1"}}
	svc := reconciled(t, func() (everonce.Verdict[httponce.Answer], error) {
		return everonce.Happened(httponce.Answer{Status: 201, Header: theirs, Body: []byte("paid")}), nil
	})
	svc.post("k")
	for range 2 { // asked, and saved
		g := svc.post("k")
		if g.status != http.StatusCreated || g.location != "/payments/1" || g.body != "paid" || g.header.Get("Content-Length") == "99" || theirs.Get("Content-Length") != "99" {
			t.Errorf("it got %+v", g)
		}
	}
}

// An answer that net/http would panic at is not sent.
func TestReconciledWithAStatusThatIsNone(t *testing.T) {
	for _, status := range []int{-1, 42, 100, 1000} {
		svc := reconciled(t, func() (everonce.Verdict[httponce.Answer], error) {
			return everonce.Happened(httponce.Answer{Status: status}), nil
		})
		svc.post("k")
		if g := svc.post("k"); g.status != 503 || g.problem != "record-unreadable" {
			t.Errorf("%d: it got %+v", status, g)
		}
		if g := svc.post("k"); g.status != 200 || g.mark != "elided" {
			t.Errorf("%d: and then %+v", status, g)
		}
	}
}

// A question without an answer leaves it unknown, and the log says so. The next request asks again, so the answer has a
// Retry-After.
func TestReconciledWithoutAnAnswer(t *testing.T) {
	svc := reconciled(t, func() (everonce.Verdict[httponce.Answer], error) {
		return everonce.Verdict[httponce.Answer]{}, errors.New("the gateway is down")
	})
	svc.post("k")
	for range 2 {
		if g := svc.post("k"); g.status != 409 || g.problem != "outcome-unknown" || g.retryAfter != "1" || !strings.Contains(g.body, "Send the same request again") || strings.Contains(g.body, "gateway") {
			t.Errorf("it got %+v", g)
		}
	}
	if !strings.Contains(svc.logs.String(), "the gateway is down") {
		t.Errorf("logged was %s", svc.logs.String())
	}
	if svc.ran() != 1 {
		t.Errorf("the handler was called %d times", svc.ran())
	}
}

// A reconciled answer that could not be recorded is sent all the same.
func TestReconciledAndNotRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := reconciled(t, func() (everonce.Verdict[httponce.Answer], error) {
			return everonce.Happened(httponce.Answer{Status: 201, Body: []byte("paid")}), nil
		})
		svc.post("k")
		time.Sleep(time.Minute)
		svc.fail(always(oncetest.FailBefore, oncetest.OpComplete))
		if g := svc.post("k"); g.status != 201 || g.body != "paid" || g.mark != "true" {
			t.Errorf("it got %+v", g)
		}
		if last := svc.last(); last.Outcome != everonce.NotRecorded || !strings.Contains(svc.logs.String(), "outcome=not_recorded") {
			t.Errorf("Observe got %+v, logged %s", last, svc.logs.String())
		}
	})
}
