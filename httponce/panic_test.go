package httponce_test

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/internal/mapdb"
)

// unwindings are the ways in which a handler does not return.
var unwindings = map[string]func(){
	"panic":                func() { panic("the handler is broken") },
	"http.ErrAbortHandler": func() { panic(http.ErrAbortHandler) },
	"Goexit":               runtime.Goexit,
}

// unwound sends a request in a separate goroutine, and returns the value that it panicked with.
func (svc *service) unwound(key string) (value any, returned bool) {
	var wg sync.WaitGroup
	wg.Go(func() {
		defer func() { value = recover() }()
		svc.post(key)
		returned = true
	})
	wg.Wait()
	return value, returned
}

// A handler that charges and then panics, aborts or exits: the panic goes on, and under Refuse there is one charge.
func TestAHandlerThatChargesAndPanicsChargesOnceUnderRefuse(t *testing.T) {
	for name, unwind := range unwindings {
		t.Run(name, func(t *testing.T) {
			charged := 0
			svc := newService(t, setup{handle: func(w http.ResponseWriter, _ *http.Request) {
				charged++
				w.WriteHeader(http.StatusCreated)
				unwind()
			}})
			value, returned := svc.unwound("k")
			if returned || (name == "Goexit") != (value == nil) || name == "http.ErrAbortHandler" && value != http.ErrAbortHandler { //nolint:errorlint // the value itself
				t.Errorf("it returned: %v, and panicked with %v", returned, value)
			}
			if last := svc.last(); !last.Panicked || last.Status != 0 || last.Outcome != 0 {
				t.Errorf("Observe got %+v", last)
			}
			for range 2 {
				if g := svc.post("k"); g.status != 409 || g.problem != "outcome-unknown" {
					t.Errorf("the retry got %+v", g)
				}
			}
			if charged != 1 {
				t.Errorf("%d charges", charged)
			}
			if last := svc.last(); last.Panicked || last.Outcome != everonce.Unknown {
				t.Errorf("Observe got %+v", last)
			}
		})
	}
}

// A handler that charges and then answers 503 charges once under Refuse, and once for every attempt under Reexecute.
func TestAHandlerThatChargesAndAnswers503ChargesOnceUnderRefuse(t *testing.T) {
	for policy, want := range map[everonce.Policy]int{everonce.Refuse: 1, everonce.Reexecute: 3} {
		charged := 0
		svc := newService(t, setup{policy: policy, handle: func(w http.ResponseWriter, r *http.Request) {
			charged++
			answers(503, "later")(w, r)
		}})
		if g := svc.post("k"); g.status != 503 || g.body != "later" {
			t.Errorf("%v: the first got %+v", policy, g)
		}
		svc.post("k")
		svc.post("k")
		if charged != want {
			t.Errorf("%v: %d charges, want %d", policy, charged, want)
		}
	}
}

// Under Reexecute a panic releases, and the retry runs.
func TestAPanicIsRunAgainUnderReexecute(t *testing.T) {
	for name, unwind := range unwindings {
		first := true
		svc := newService(t, setup{policy: everonce.Reexecute, handle: func(w http.ResponseWriter, r *http.Request) {
			if first {
				first = false
				unwind()
			}
			answers(201, "paid")(w, r)
		}})
		svc.unwound("k")
		if g := svc.post("k"); g.status != 201 || g.mark != "" {
			t.Errorf("%s: the retry got %+v", name, g)
		}
	}
}

// In a transaction a panic rolls back, and the retry runs.
func TestAPanicInATransactionRollsBack(t *testing.T) {
	for name, unwind := range unwindings {
		first := true
		svc := newService(t, setup{handleTx: func(w http.ResponseWriter, r *http.Request, tx *mapdb.Tx) error {
			if err := charges(201, "paid", nil)(w, r, tx); first {
				first = false
				unwind()
				return err
			}
			return nil
		}})
		value, returned := svc.unwound("k")
		if returned || (name == "Goexit") != (value == nil) {
			t.Errorf("%s: it returned: %v, and panicked with %v", name, returned, value)
		}
		if last := svc.last(); !last.Panicked {
			t.Errorf("%s: Observe got %+v", name, last)
		}
		if n := svc.db.Count("charge"); n != 0 {
			t.Errorf("%s: %d effects after the panic", name, n)
		}
		if g := svc.post("k"); g.status != 201 || g.mark != "" || svc.db.Count("charge") != 1 {
			t.Errorf("%s: the retry got %+v", name, g)
		}
	}
}

// Over a connection, a handler that panics ends it without an answer, as net/http has it: nothing of what it wrote is
// sent.
func TestAPanicEndsTheConnection(t *testing.T) {
	svc := newService(t, setup{handle: func(w http.ResponseWriter, r *http.Request) {
		answers(201, "paid")(w, r)
		panic(http.ErrAbortHandler)
	}})
	server := httptest.NewUnstartedServer(svc)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	defer server.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/payments", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.GetBody = nil // or net/http sends it again, which is answered 409
	req.Header.Set("Idempotency-Key", "k")
	if res, err := server.Client().Do(req); err == nil {
		t.Errorf("there was an answer: %d", res.StatusCode)
	}
	if svc.ran() != 1 {
		t.Errorf("the handler was called %d times", svc.ran())
	}
}
