package httponce_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/internal/mapdb"
	"github.com/everonce/everonce/oncetest"
)

// An option without meaning in a transaction is rejected when the handler is made, with its name and the reason.
func TestHandleTxRefusesWhatHasNoMeaning(t *testing.T) {
	recv, err := everonce.NewTxReceiver[*mapdb.Tx](mapdb.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	handle := charges(201, "paid", nil)
	ask := func(context.Context, everonce.Abandoned) (everonce.Verdict[httponce.Answer], error) {
		return everonce.StillUnknown[httponce.Answer](), nil
	}
	for name, route := range map[string]httponce.Route{
		"AnswerWithin": {AnswerWithin: time.Second},
		"FailOpen":     {FailOpen: true},
		"Policy":       {Policy: everonce.Refuse},
		"Reconcile":    {Reconcile: ask},
		"Lease":        {Lease: time.Minute},
		// Its client would get a success whose effects were rolled back.
		"Save of 2xx and 3xx": {Save: httponce.Save{"303": httponce.Released}},
	} {
		for where, opts := range map[string]*httponce.Options{
			"":                       {Route: route},
			`route "POST /payments"`: {Routes: map[string]httponce.Route{"POST /payments": route}},
		} {
			_, err := httponce.HandleTx(recv, httponce.Unscoped(), handle, opts)
			if !errors.Is(err, everonce.ErrInvalidArgument) || !strings.Contains(err.Error(), where) || !strings.Contains(err.Error(), name+" has no meaning") {
				t.Errorf("%s in %s: %v", name, where, err)
			}
		}
	}
	for name, build := range map[string]func() (http.Handler, error){
		"receiver": func() (http.Handler, error) {
			return httponce.HandleTx[*mapdb.Tx](nil, httponce.Unscoped(), handle, nil)
		},
		"principal": func() (http.Handler, error) { return httponce.HandleTx(recv, nil, handle, nil) },
		"handler":   func() (http.Handler, error) { return httponce.HandleTx(recv, httponce.Unscoped(), nil, nil) },
		"options": func() (http.Handler, error) {
			return httponce.HandleTx(recv, httponce.Unscoped(), handle, &httponce.Options{MaxWaiting: -1})
		},
	} {
		if h, err := build(); !errors.Is(err, everonce.ErrInvalidArgument) || h != nil {
			t.Errorf("%s: %v, %v", name, h, err)
		}
	}
}

// A body that is refused is not handled, with a key or without one.
func TestHandleTxOfABodyThatIsRefused(t *testing.T) {
	svc := newService(t, setup{handleTx: charges(201, "paid", nil), opts: httponce.Options{Route: httponce.Route{MaxBody: 10}}})
	for _, headers := range [][]string{nil, {"Idempotency-Key", "k"}} {
		if g := read(t, send(svc, http.MethodPost, "/payments", "more than ten bytes", headers...)); g.status != 413 || g.problem != "body-too-large" || svc.ran() != 0 {
			t.Errorf("it got %+v, and the handler was called %d times", g, svc.ran())
		}
	}
}

// A large answer without a key is sent, and not kept: it cannot be looked up.
func TestHandleTxKeepsNothingWithoutAKey(t *testing.T) {
	text := noise(600 << 10)
	svc := newService(t, setup{handleTx: charges(201, text, nil)})
	if g := read(t, send(svc, http.MethodPost, "/payments", "{}")); g.status != 201 || g.body != text || svc.logs.Len() != 0 {
		t.Errorf("it got %d and %d bytes; logged was %s", g.status, len(g.body), svc.logs.String())
	}
}

// MaxAnswer bounds what is kept of a transaction's answer to the byte, though all of it is held and sent.
func TestMaxAnswerOfATransaction(t *testing.T) {
	for most, want := range map[int64]got{4: created.marked("true"), 3: created.bodiless("elided")} {
		svc := newService(t, setup{handleTx: charges(201, "paid", nil), opts: httponce.Options{Route: httponce.Route{MaxAnswer: most}}})
		if g := svc.post("k"); g.status != 201 || g.body != "paid" {
			t.Errorf("of %d bytes, the first got %+v", most, g)
		}
		if g := svc.post("k"); g.status != want.status || g.body != want.body || g.mark != want.mark || g.location != want.location {
			t.Errorf("of %d bytes, a repetition got %+v, want %+v", most, g, want)
		}
	}
}

// The answer is held until the commit: whatever would send a part of it before is an error, and 1xx are dropped.
func TestHandleTxHoldsTheAnswer(t *testing.T) {
	svc := newService(t, setup{handleTx: func(w http.ResponseWriter, _ *http.Request, tx *mapdb.Tx) error {
		if err := tx.Add("charge"); err != nil {
			return err
		}
		_, flusher := w.(http.Flusher)
		_, hijacker := w.(http.Hijacker)
		_, unwrapper := w.(interface{ Unwrap() http.ResponseWriter })
		if flusher || hijacker || unwrapper {
			return errors.New("the writer can flush, hijack or unwrap")
		}
		c := http.NewResponseController(w)
		_, _, hijackErr := c.Hijack()
		for _, err := range []error{c.Flush(), hijackErr, c.SetWriteDeadline(time.Time{}), c.EnableFullDuplex()} {
			if !errors.Is(err, http.ErrNotSupported) {
				return fmt.Errorf("it returned %w", err)
			}
		}
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusSwitchingProtocols)
		if p := panicOf(func() { w.WriteHeader(99) }); p != "invalid WriteHeader code 99" {
			return fmt.Errorf("a 99 panics with %v", p)
		}
		w.Header().Set("Location", "/payments/1")
		w.WriteHeader(http.StatusCreated)
		_, err := io.WriteString(w, "paid")
		return err
	}})
	server := httptest.NewServer(svc)
	defer server.Close()
	for _, mark := range []string{"", "true"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/payments", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Idempotency-Key", "k")
		req = req.WithContext(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
				t.Errorf("a %d was sent", code)
				return nil
			},
		}))
		res, err := server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if g := read(t, res); g.status != 201 || g.body != "paid" || g.location != "/payments/1" || g.mark != mark {
			t.Errorf("it got %+v\n%s", g, svc.logs.String())
		}
		res.Body.Close()
	}
}

// Each run of a transaction gets the whole body.
func TestHandleTxGivesEveryRunTheBody(t *testing.T) {
	runs := 0
	svc := newService(t, setup{handleTx: func(w http.ResponseWriter, r *http.Request, tx *mapdb.Tx) error {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		if runs++; runs < 3 {
			fmt.Fprint(w, "half an answer")
			return mapdb.ErrDeadlock
		}
		return charges(201, string(body), nil)(w, r, tx)
	}})
	synctest.Test(t, func(t *testing.T) {
		if g := svc.postBody("k", `{"amount":7}`); g.status != 201 || g.body != `{"amount":7}` || svc.db.Count("charge") != 1 {
			t.Errorf("it got %+v", g)
		}
	})
}

// Requests that need no key run in a transaction too, by the same rules.
func TestHandleTxWithoutAKey(t *testing.T) {
	permanent := everonce.Permanent("no_funds", errors.New("the account is empty"), nil)
	inner := func(o everonce.Outcome, sentinel error) error { // what became of another operation, which the handler called
		return &everonce.Error{Outcome: o, Sentinel: sentinel}
	}
	for _, c := range []struct {
		name    string
		handle  func(http.ResponseWriter, *http.Request, *mapdb.Tx) error
		plan    oncetest.Plan
		want    got
		effects int
	}{
		{name: "done", handle: charges(201, "paid", nil), want: created, effects: 1},
		{name: "refused", handle: charges(402, "no money", nil), want: got{status: 402, body: "no money", location: "/payments/1"}},
		{name: "broken", handle: charges(500, "sorry", nil), want: got{status: 500, body: "sorry", location: "/payments/1"}},
		{name: "an error", handle: charges(0, "", errBug), want: problemOf(503, "not-done", "1")},
		{name: "an error after a success was written", handle: charges(201, "paid", errBug), want: problemOf(503, "not-done", "1")},
		{name: "an error after a failure was written", handle: charges(404, "none", errBug), want: got{status: 404, body: "none", location: "/payments/1"}},
		{name: "another operation's answer is not kept", handle: charges(0, "", inner(everonce.Elided, everonce.ErrResultElided)), want: problemOf(503, "not-done", "1")},
		{name: "another operation is unknown", handle: charges(0, "", inner(everonce.Unknown, everonce.ErrOutcomeUnknown)), want: problemOf(503, "not-done", "1")},
		{name: "another operation is unknown, with an answer", handle: charges(502, "ask", inner(everonce.Unknown, everonce.ErrOutcomeUnknown)), want: got{status: 502, body: "ask", location: "/payments/1"}},
		{name: "another operation was refused", handle: charges(409, "no", inner(everonce.Rejected, permanent)), want: got{status: 409, body: "no", location: "/payments/1"}},
		{name: "permanent", handle: charges(0, "", permanent), want: got{status: 422, problem: "refused", code: "no_funds"}},
		{name: "permanent, with an answer that says so", handle: charges(402, "no money", permanent), want: got{status: 402, body: "no money", location: "/payments/1"}},
		{name: "not done by its own word", want: created, handle: func(w http.ResponseWriter, r *http.Request, tx *mapdb.Tx) error {
			httponce.NotDone(w)
			return charges(201, "paid", nil)(w, r, tx)
		}},
		{name: "no store", handle: charges(201, "paid", nil), plan: everything, want: problemOf(503, "store-unavailable", "5")},
		{name: "the commit's answer was lost", handle: charges(201, "paid", nil), plan: always(oncetest.FailAfter, oncetest.OpCommit), want: problemOf(500, "commit-lost", ""), effects: 1},
	} {
		for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
			t.Run(c.name+" "+method, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					svc := newService(t, setup{handleTx: c.handle})
					svc.fail(c.plan)
					g := read(t, send(svc, method, "/payments", "{}"))
					if c.want.problem != "" {
						c.want.body = g.body
					}
					if g.header = nil; g.status != c.want.status || g.body != c.want.body || g.problem != c.want.problem || g.code != c.want.code || g.retryAfter != c.want.retryAfter || g.mark != "" {
						t.Errorf("it got %+v, want %+v", g, c.want)
					}
					if n := svc.db.Count("charge"); n != c.effects {
						t.Errorf("%d effects, want %d", n, c.effects)
					}
					if strings.Contains(g.body, "ssn") {
						t.Errorf("the error's text was sent: %s", g.body)
					}
					if len(svc.served) != 0 {
						t.Errorf("Observe got %+v", svc.served)
					}
				})
			})
		}
	}
}

// A request whose method takes no key is not recorded, even if it has one.
func TestHandleTxOtherMethodsAreNotRecorded(t *testing.T) {
	svc := newService(t, setup{handleTx: charges(200, "paid", nil)})
	for range 2 {
		if res := send(svc, http.MethodDelete, "/payments", "", "Idempotency-Key", "k"); res.StatusCode != http.StatusOK || res.Header.Get("Idempotent-Replayed") != "" {
			t.Errorf("it got %d %v", res.StatusCode, res.Header)
		}
	}
	if n := svc.db.Count("charge"); n != 2 {
		t.Errorf("%d effects, want 2", n)
	}
}

// The work goes on when the client has left, unless the route says otherwise; the transaction's own limit holds in
// both cases.
func TestHandleTxWhenTheClientLeaves(t *testing.T) {
	for _, end := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			svc := newService(t, setup{
				opts: httponce.Options{Route: httponce.Route{EndWithClient: end}},
				handleTx: func(w http.ResponseWriter, r *http.Request, tx *mapdb.Tx) error {
					select {
					case <-r.Context().Done():
						return context.Cause(r.Context())
					case <-time.After(10 * time.Second):
						return charges(201, "paid", nil)(w, r, tx)
					}
				},
			})
			ctx, leave := context.WithTimeout(context.Background(), 3*time.Second)
			defer leave()
			svc.with(ctx, "k", "{}")
			if n := svc.db.Count("charge"); (n == 0) != end {
				t.Errorf("end with client %v: %d effects", end, n)
			}
			if g := svc.post("k"); g.status != 201 || (g.mark == "") != end || svc.db.Count("charge") != 1 {
				t.Errorf("end with client %v: the retry got %+v", end, g)
			}
		})
	}
}

// The handler's context ends with the transaction's limit, and with the route's deadline where that is sooner.
func TestHandleTxBoundsTheHandler(t *testing.T) {
	for _, c := range []struct {
		core  everonce.Options
		route httponce.Route
		ctx   time.Duration // of the request; 0 means no deadline
		want  time.Duration
	}{
		{want: 30 * time.Second},
		{core: everonce.Options{TxTimeout: 4 * time.Second}, want: 4 * time.Second},
		{route: httponce.Route{Deadline: 2 * time.Second}, want: 2 * time.Second},
		{core: everonce.Options{TxTimeout: 4 * time.Second}, route: httponce.Route{Deadline: -1}, want: 4 * time.Second},
		{core: everonce.Options{TxTimeout: 4 * time.Second}, ctx: time.Minute, want: 4 * time.Second},
		{route: httponce.Route{EndWithClient: true}, ctx: time.Second, want: time.Second},
		{ctx: time.Second, want: 30 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			svc := newService(t, setup{core: c.core, opts: httponce.Options{Route: c.route}, handleTx: func(_ http.ResponseWriter, r *http.Request, _ *mapdb.Tx) error {
				<-r.Context().Done()
				return r.Context().Err()
			}})
			ctx := context.Background()
			if c.ctx != 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, c.ctx)
				defer cancel()
			}
			begun := time.Now()
			if g := svc.with(ctx, "k", "{}"); g.status != 503 || g.problem != "not-done" {
				t.Errorf("it got %+v", g)
			}
			if took := time.Since(begun); took != c.want {
				t.Errorf("%+v: it took %v, want %v", c, took, c.want)
			}
		})
	}
}

// A handler may record operations inside the transaction: they commit with it, or roll back with it.
func TestHandleTxWithAnOperationInside(t *testing.T) {
	for _, status := range []int{201, 402} {
		var svc *service
		svc = newService(t, setup{handleTx: func(w http.ResponseWriter, r *http.Request, tx *mapdb.Tx) error {
			_, err := everonce.DoTx(r.Context(), tx, svc.recvTx, everonce.Key{Scope: "order", ID: "7"}, func(context.Context) (string, error) {
				return "shipped", tx.Add("shipment")
			})
			if err != nil {
				return err
			}
			return charges(status, "paid", nil)(w, r, tx)
		}})
		if g := svc.post("k"); g.status != status {
			t.Errorf("it got %+v\n%s", g, svc.logs.String())
		}
		svc.post("other")
		want := map[int][2]int{201: {1, 2}, 402: {0, 0}}[status]
		if got := [2]int{svc.db.Count("shipment"), svc.db.Count("charge")}; got != want {
			t.Errorf("%d: shipments and charges are %v, want %v", status, got, want)
		}
	}
}

// panicOf returns what a function panics with.
func panicOf(f func()) (p any) {
	defer func() { p = recover() }()
	f()
	return nil
}
