package httponce_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
)

// A settled answer is replayed, and reported to Observe, as if the handler had given it. After its retention its own
// status and headers remain, and not a 200.
func TestASettlementOfAnAnswerIsAsIfTheHandlerHadGivenIt(t *testing.T) {
	paid := http.Header{"Location": {"/payments/1"}, "Set-Cookie": {"session=1"}, "Content-Length": {"99"}, "Date": {"yesterday"}}
	for name, c := range map[string]struct {
		answer        httponce.Answer
		want, expired got
		outcome, rest everonce.Outcome
	}{
		"paid": {
			httponce.Answer{Status: 201, Header: paid, Body: []byte("paid")},
			got{status: 201, body: "paid", location: "/payments/1", mark: "true"},
			got{status: 201, location: "/payments/1", mark: "expired"},
			everonce.Replayed, everonce.Expired,
		},
		"refused": {
			httponce.Answer{Status: 402, Header: http.Header{"Content-Type": {"text/plain"}}, Body: []byte("no funds")},
			got{status: 402, body: "no funds", mark: "true"},
			got{status: 402, mark: "expired"},
			everonce.Rejected, everonce.Expired,
		},
		"without its body": {
			httponce.Answer{Status: 201, Header: paid, Elided: true},
			got{status: 201, location: "/payments/1", mark: "elided"},
			got{status: 201, location: "/payments/1", mark: "expired"},
			everonce.Elided, everonce.Expired,
		},
		"a refusal without its body": {
			httponce.Answer{Status: 410, Elided: true}, got{status: 410, mark: "elided"}, got{status: 410, mark: "expired"}, everonce.Rejected, everonce.Expired,
		},
		"no content": {httponce.Answer{Status: 204}, got{status: 204, mark: "true"}, got{status: 204, mark: "expired"}, everonce.Replayed, everonce.Expired},
		"no status":  {httponce.Answer{Body: []byte("ok")}, got{status: 200, body: "ok", mark: "true"}, got{status: 200, mark: "expired"}, everonce.Replayed, everonce.Expired},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				svc := newService(t, setup{handle: answers(500, "sorry")})
				svc.post("k")
				s, err := c.answer.Settlement()
				if err != nil {
					t.Fatal(err)
				}
				s.Lifetime = everonce.Lifetime{Retention: time.Hour, Remember: time.Hour}
				if err := svc.recv.Settle(t.Context(), keyOf("k"), s); err != nil {
					t.Fatal(err)
				}
				check := func(want got, outcome everonce.Outcome) {
					t.Helper()
					g := svc.post("k")
					if g.status != want.status || g.body != want.body || g.location != want.location || g.mark != want.mark || g.header.Get("Set-Cookie")+g.header.Get("Date") != "" {
						t.Errorf("a repetition got %+v, want %+v", g, want)
					}
					if last := svc.last(); last.Outcome != outcome || last.Status != want.status {
						t.Errorf("Observe got %+v, want %v", last, outcome)
					}
				}
				check(c.want, c.outcome)
				time.Sleep(time.Hour + time.Second)
				check(c.expired, c.rest)
				if svc.ran() != 1 {
					t.Errorf("the handler ran %d times", svc.ran())
				}
			})
		})
	}
}

// An answer that could not be sent is rejected, because a settlement cannot be undone.
func TestAnAnswerThatCanNotBeSettled(t *testing.T) {
	for name, a := range map[string]httponce.Answer{
		"200 to 599":                 {Status: 199},
		"is 600":                     {Status: 600},
		"a 204 has no body":          {Status: 204, Body: []byte("x")},
		"a 304 has no body":          {Status: 304, Body: []byte("x")},
		"elided, and has":            {Body: []byte("x"), Elided: true},
		"262145 bytes":               {Body: []byte(strings.Repeat("x", 256<<10+1))},
		`"No Name" is not the name`:  {Header: http.Header{"No Name": {"x"}}},
		"X-A has a line break":       {Header: http.Header{"X-A": {"x\r\nSet-Cookie: a=b"}}},
		"X-B has a line break":       {Header: http.Header{"X-B": {"x\x00"}}},
		"Sum has a line break":       {Trailer: http.Header{"Sum": {"x\n"}}},
		`"Trailer:" is not the name`: {Trailer: http.Header{"Trailer:": {"x"}}},
	} {
		if _, err := a.Settlement(); !errors.Is(err, everonce.ErrInvalidArgument) || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want it to speak of %q", err, name)
		}
	}
	if _, err := (httponce.Answer{Body: []byte(strings.Repeat("x", 256<<10))}).Settlement(); err != nil {
		t.Errorf("a body as large as may be: %v", err)
	}
	if s, err := (httponce.Answer{Status: 400}).Settlement(); err != nil || s.Failure == nil || s.Encoded != nil {
		t.Errorf("a 400 is no refusal: %+v, %v", s, err)
	}
	mine := http.Header{"Content-Length": {"7"}}
	if _, err := (httponce.Answer{Header: mine, Body: []byte("x")}).Settlement(); err != nil || mine.Get("Content-Length") != "7" {
		t.Errorf("%v, and the caller's header is %v", err, mine)
	}
}
