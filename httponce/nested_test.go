package httponce_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/httponce/proxy"
	"github.com/everonce/everonce/internal/mapdb"
	"github.com/everonce/everonce/oncetest"
)

// A handler that is protected twice with the same key is a programming error. It fails with a clear message, and does
// not wait for itself.
func TestProtectedTwiceWithTheSameKey(t *testing.T) {
	var inner http.Handler
	svc := newService(t, setup{handle: func(w http.ResponseWriter, r *http.Request) { inner.ServeHTTP(w, r) }})
	inner = svc
	if g := svc.post("k"); g.status != 500 || g.problem != "internal" || strings.Contains(g.body, "twice") {
		t.Errorf("it got %+v", g)
	}
	if !strings.Contains(svc.logs.String(), "protected twice with the same key") {
		t.Errorf("logged was %s", svc.logs.String())
	}
	if svc.ran() != 1 {
		t.Errorf("the handler was called %d times", svc.ran())
	}
}

// Under different keys one protected handler may call another; what the inner one cannot say yet is not saved
// by the outer one as its answer for good.
func TestProtectedInsideOfAnother(t *testing.T) {
	status := 500
	inner := newService(t, setup{handle: func(w http.ResponseWriter, r *http.Request) { answers(status, "paid")(w, r) }})
	outer := newService(t, setup{policy: everonce.Reexecute, handle: inner.ServeHTTP})
	outer.post("k")
	for range 2 {
		if g := outer.post("k"); g.status != 409 || g.problem != "outcome-unknown" || g.mark != "" {
			t.Errorf("it got %+v", g)
		}
	}
	err := inner.recv.Settle(context.Background(), keyOf("k"), everonce.Settlement{Verdict: everonce.SettleNotDone})
	if err != nil {
		t.Fatal(err)
	}
	status = 201
	if g := outer.post("k"); g.status != 201 || g.mark != "" {
		t.Errorf("when it was settled, it got %+v", g)
	}
	if g := outer.post("k"); g.status != 201 || g.mark != "true" || inner.ran() != 2 {
		t.Errorf("and then %+v, after %d calls", g, inner.ran())
	}
}

// Nor is it that the inner one's key is in use.
func TestProtectedInsideOfAnotherWhileTheInnerOneRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newService(t, setup{handle: answers(201, "paid")})
		outer := newService(t, setup{policy: everonce.Reexecute, handle: inner.ServeHTTP})
		inner.fail(always(oncetest.FailBefore, oncetest.OpRelease))
		inner.claim("k")
		for range 2 {
			if g := outer.post("k"); g.status != 409 || g.problem != "in-progress" || g.mark != "" {
				t.Errorf("it got %+v", g)
			}
		}
	})
}

// So it is inside a transaction, on another store.
func TestProtectedInsideOfATransaction(t *testing.T) {
	status := 500
	inner := newService(t, setup{handle: func(w http.ResponseWriter, r *http.Request) { answers(status, "paid")(w, r) }})
	outer := newService(t, setup{handleTx: func(w http.ResponseWriter, r *http.Request, tx *mapdb.Tx) error {
		inner.ServeHTTP(w, r)
		return tx.Add("charge")
	}})
	outer.post("k")
	for range 2 {
		if g := outer.post("k"); g.status != 409 || g.problem != "outcome-unknown" || g.mark != "" {
			t.Errorf("it got %+v", g)
		}
	}
	if err := inner.recv.Settle(t.Context(), keyOf("k"), everonce.Settlement{Verdict: everonce.SettleNotDone}); err != nil {
		t.Fatal(err)
	}
	status = 201
	for _, mark := range []string{"", "true"} {
		if g := outer.post("k"); g.status != 201 || g.mark != mark || inner.ran() != 2 || outer.db.Count("charge") != 1 {
			t.Errorf("when it was settled, it got %+v, after %d calls", g, inner.ran())
		}
	}
}

// A protected handler inside a transaction on its own store would wait for itself: it fails with a clear message. The
// 500 rolls the transaction back.
func TestProtectedInsideOfATransactionOfItsStore(t *testing.T) {
	var inner http.Handler
	svc := newService(t, setup{handleTx: func(w http.ResponseWriter, r *http.Request, tx *mapdb.Tx) error {
		if err := tx.Add("charge"); err != nil {
			return err
		}
		inner.ServeHTTP(w, r)
		return nil
	}})
	var err error
	inner, err = httponce.HandleTx(svc.recvTx, httponce.Unscoped(), charges(201, "paid", nil), &httponce.Options{
		Log: slog.New(slog.NewTextHandler(&svc.logs, nil)), Route: httponce.Route{Name: func(*http.Request) string { return "inner" }},
	})
	if err != nil {
		t.Fatal(err)
	}
	if g := svc.post("k"); g.status != 500 || g.problem != "internal" || svc.db.Count("charge") != 0 {
		t.Errorf("it got %+v, with %d effects", g, svc.db.Count("charge"))
	}
	if logs := svc.logs.String(); !strings.Contains(logs, "inside a transaction on the same store") || strings.Contains(logs, "protected twice with the same key") {
		t.Errorf("logged was %s", logs)
	}
}

// A temporary answer of the inner handler is not final, though the outer one saves server errors.
func TestProtectedInsideOfOneThatSavesAll(t *testing.T) {
	inner := newService(t, setup{handle: answers(201, "paid")})
	between := newService(t, setup{policy: everonce.Reexecute, handle: inner.ServeHTTP, opts: httponce.Options{Route: httponce.Route{Save: saveAll}}})
	outer := newService(t, setup{policy: everonce.Reexecute, handle: between.ServeHTTP, opts: httponce.Options{Route: httponce.Route{Save: saveAll}}})
	inner.fail(everything)
	for range 2 {
		if g := outer.post("k"); g.status != 503 || g.problem != "store-unavailable" || g.mark != "" {
			t.Errorf("while the inner store is down, it got %+v", g)
		}
	}
	inner.fail(nil)
	for _, mark := range []string{"", "true"} {
		if g := outer.post("k"); g.status != 201 || g.mark != mark {
			t.Errorf("when it is back, it got %+v, want it marked %q", g, mark)
		}
	}
}

// Nor is a proxy's answer inside the inner one about a service that cannot be reached, nor an answer by which the inner
// handler says that nothing took hold: the inner key is free, and the outer one's final answer would be a failure.
func TestProtectedInsideOfOneThatSavesWhatWasNotDone(t *testing.T) {
	unreachable, err := proxy.New(&url.URL{Scheme: "http", Host: "127.0.0.1:0"}, &proxy.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		fails  http.Handler
		status int
	}{
		"a proxy": {unreachable, 502},
		"NotDone": {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			httponce.NotDone(w)
			w.WriteHeader(http.StatusInternalServerError)
		}), 500},
	} {
		handler := c.fails
		inner := newService(t, setup{handle: func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(w, r) }})
		outer := newService(t, setup{policy: everonce.Reexecute, handle: inner.ServeHTTP, opts: httponce.Options{Route: httponce.Route{Save: saveAll}}})
		for range 2 {
			if g := outer.post("k"); g.status != c.status || g.mark != "" {
				t.Errorf("%s: while it fails: %+v", name, g)
			}
		}
		handler = answers(201, "paid")
		for _, mark := range []string{"", "true"} {
			if g := outer.post("k"); g.status != 201 || g.mark != mark {
				t.Errorf("%s: when it is back: %+v, want it marked %q", name, g, mark)
			}
		}
	}
}
