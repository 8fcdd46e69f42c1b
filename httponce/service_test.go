package httponce_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/internal/mapdb"
	"github.com/everonce/everonce/oncetest"
	"github.com/everonce/everonce/store/memstore"
)

// service is a protected handler, with access to its store and to all that Observe gets.
type service struct {
	t testing.TB
	http.Handler
	recv   *everonce.Receiver              // in guarded mode
	recvTx *everonce.TxReceiver[*mapdb.Tx] // in transactional mode
	db     *mapdb.DB
	logs   bytes.Buffer
	// during, if set, is called when the handler is.
	during func()

	mu     sync.Mutex
	plan   oncetest.Plan
	served []httponce.Served
	calls  int
}

// setup is what a service is made of. The zero value of each field is its default: policy Refuse.
type setup struct {
	policy everonce.Policy
	core   everonce.Options
	opts   httponce.Options
	// handle is the handler; handleTx the one with a transaction.
	handle   http.HandlerFunc
	handleTx func(http.ResponseWriter, *http.Request, *mapdb.Tx) error
}

func newService(t testing.TB, s setup) *service {
	t.Helper()
	svc := &service{t: t}
	s.opts.Log = slog.New(slog.NewTextHandler(&svc.logs, nil))
	s.core.Log = s.opts.Log
	s.opts.Observe = func(_ context.Context, told httponce.Served) {
		svc.mu.Lock()
		defer svc.mu.Unlock()
		svc.served = append(svc.served, told)
	}
	if s.policy == 0 {
		s.policy = everonce.Refuse
	}
	if s.handleTx != nil {
		svc.transactional(s)
		return svc
	}
	var err error
	if svc.recv, err = everonce.NewReceiver(oncetest.FaultStore(memstore.New(nil), svc.planned), s.policy, &s.core); err != nil {
		t.Fatal(err)
	}
	protect, err := httponce.Middleware(svc.recv, httponce.Unscoped(), &s.opts)
	if err != nil {
		t.Fatal(err)
	}
	svc.Handler = protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		svc.called()
		s.handle(w, r)
	}))
	return svc
}

func (svc *service) transactional(s setup) {
	svc.t.Helper()
	svc.db = mapdb.New()
	svc.t.Cleanup(func() {
		if n := svc.db.Held(); n > 0 {
			svc.t.Errorf("%d transactions were left open", n)
		}
	})
	var err error
	if svc.recvTx, err = everonce.NewTxReceiver(oncetest.FaultTxStore[*mapdb.Tx](svc.db, svc.planned), &s.core); err != nil {
		svc.t.Fatal(err)
	}
	svc.Handler, err = httponce.HandleTx(svc.recvTx, httponce.Unscoped(), func(w http.ResponseWriter, r *http.Request, tx *mapdb.Tx) error {
		svc.called()
		return s.handleTx(w, r, tx)
	}, &s.opts)
	if err != nil {
		svc.t.Fatal(err)
	}
}

// fail makes the store's calls fail as the plan says, from now on; nil is the end of that.
func (svc *service) fail(plan oncetest.Plan) {
	svc.mu.Lock()
	defer svc.mu.Unlock()
	svc.plan = plan
}

func (svc *service) planned(c oncetest.Call) oncetest.Fault {
	svc.mu.Lock()
	plan := svc.plan
	svc.mu.Unlock()
	if plan == nil {
		return oncetest.Pass
	}
	return plan(c)
}

func (svc *service) called() {
	svc.mu.Lock()
	svc.calls++
	svc.mu.Unlock()
	if svc.during != nil {
		svc.during()
	}
}

// ran returns how often the handler was called.
func (svc *service) ran() int {
	svc.mu.Lock()
	defer svc.mu.Unlock()
	return svc.calls
}

// last returns the last call of Observe.
func (svc *service) last() httponce.Served {
	svc.t.Helper()
	svc.mu.Lock()
	defer svc.mu.Unlock()
	if len(svc.served) == 0 {
		svc.t.Fatal("Observe was not called")
	}
	return svc.served[len(svc.served)-1]
}

// post sends an operation with that key, and ends with its answer.
func (svc *service) post(key string) got { return svc.postBody(key, "{}") }

func (svc *service) postBody(key, body string) got {
	svc.t.Helper()
	return svc.with(context.Background(), key, body)
}

func (svc *service) with(ctx context.Context, key, body string) got {
	svc.t.Helper()
	r := httptest.NewRequestWithContext(ctx, "POST", "/payments", strings.NewReader(body))
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	svc.ServeHTTP(w, r)
	return read(svc.t, w.Result())
}

// got is an answer that was read.
type got struct {
	status               int
	body, mark, location string
	retryAfter           string
	problem, code        string
	header               http.Header
}

func read(t testing.TB, res *http.Response) got {
	t.Helper()
	g := got{
		status: res.StatusCode, body: bodyOf(t, res), mark: res.Header.Get("Idempotent-Replayed"),
		location: res.Header.Get("Location"), retryAfter: res.Header.Get("Retry-After"), header: res.Header,
	}
	if res.Header.Get("Content-Type") == "application/problem+json" {
		var doc struct {
			Type, Title, Detail, Code string
			Status                    int
		}
		if err := json.Unmarshal([]byte(g.body), &doc); err != nil && g.body != "" {
			t.Errorf("the problem is no JSON: %v", err)
		}
		g.problem, g.code = strings.TrimSuffix(path.Base(doc.Type), ".md"), doc.Code
		if g.body == "" {
			g.problem = ""
		} else if doc.Status != g.status || doc.Title == "" || !strings.Contains(res.Header.Get("Link"), "<"+doc.Type+`>; rel="describedby"`) {
			t.Errorf("the problem of a %d is %s, with Link %q", g.status, g.body, res.Header.Get("Link"))
		}
	}
	return g
}

// answers returns a handler that always answers alike.
func answers(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/payments/1")
		w.WriteHeader(status)
		if _, err := w.Write([]byte(body)); err != nil {
			panic(err)
		}
	}
}

// always is a plan by which every call of these kinds has a fault.
func always(fault oncetest.Fault, ops ...oncetest.Op) oncetest.Plan {
	return func(c oncetest.Call) oncetest.Fault {
		for _, op := range ops {
			if c.Op == op {
				return fault
			}
		}
		return oncetest.Pass
	}
}

// everything is a plan by which no call of the store is made.
func everything(oncetest.Call) oncetest.Fault { return oncetest.FailBefore }
