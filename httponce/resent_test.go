package httponce_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/store/memstore"
)

// slowPayments is a service on a real connection that pays when it is let go. It tells of each operation that the core
// begins.
type slowPayments struct {
	*httptest.Server
	ops     opsBegun
	entered chan struct{} // a value for each request that is handled
	letGo   func()
	served  chan httponce.Served
}

func newSlowPayments(t *testing.T, route httponce.Route) *slowPayments {
	t.Helper()
	free := make(chan struct{})
	p := &slowPayments{ops: make(opsBegun, 9), entered: make(chan struct{}, 9), letGo: sync.OnceFunc(func() { close(free) }), served: make(chan httponce.Served, 9)}
	recv, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, &everonce.Options{Observer: p.ops})
	if err != nil {
		t.Fatal(err)
	}
	protect, err := httponce.Middleware(recv, httponce.Unscoped(), &httponce.Options{Route: route, Observe: func(_ context.Context, s httponce.Served) { p.served <- s }})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(http.ResponseWriter, *http.Request) {})
	mux.Handle("/payments", protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		p.entered <- struct{}{}
		<-free
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, "paid")
	})))
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	t.Cleanup(p.letGo)
	return p
}

// begun waits for so many calls of the core: the first request makes one, and one that waits two.
func (p *slowPayments) begun(n int) {
	for range n {
		<-p.ops
	}
}

// relay passes connections on to a server. It breaks off the first one toward its client once a POST has gone to the
// server and begun has returned, as a server or a load balancer does that closes a kept connection just when it is used
// again.
func relay(t *testing.T, to net.Addr, begun func()) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for first := true; ; first = false {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial(to.Network(), to.String())
			if err != nil {
				_ = client.Close()
				return
			}
			t.Cleanup(func() { _ = client.Close(); _ = server.Close() })
			go func() { _, _ = io.Copy(client, server) }()
			breaks := begun
			if !first {
				breaks = nil
			}
			go pass(client, server, breaks)
		}
	}()
	return ln.Addr().String()
}

// pass copies what a client sends. With breaks it closes the client's side behind its POST, once breaks has returned,
// and leaves the server's open.
func pass(client, server net.Conn, breaks func()) {
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		if _, err := server.Write(buf[:n]); err != nil {
			return
		}
		if breaks != nil && strings.HasPrefix(string(buf[:n]), http.MethodPost) {
			breaks()
			_ = client.Close()
			return
		}
	}
}

// Go's own transport may send a POST with a key again, and does so when a kept connection breaks off. Two full copies
// arrive, and the client knows about one. It gets the answer to the first, which a 409 would have hidden from it.
func TestNetHTTPSendsAgain(t *testing.T) {
	p := newSlowPayments(t, httponce.Route{})
	url := "http://" + relay(t, p.Listener.Addr(), func() { <-p.entered })
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	warm, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, warm.Body)
	warm.Body.Close()

	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/payments", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", "k")
	go func() {
		p.begun(3) // the first runs, and its copy waits
		p.letGo()
	}()
	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if g := read(t, res); g.status != http.StatusCreated || g.body != "paid" || g.mark != "true" {
		t.Fatalf("it got %+v", g)
	}
	for range 2 {
		if s := <-p.served; s.Outcome != everonce.Executed && s.Outcome != everonce.Replayed {
			t.Errorf("Observe got %+v", s)
		}
	}
}

// A client or proxy whose timeout is shorter than the wait leaves, its place is free, and its next copy waits again:
// for the answer.
func TestAProxyIsLessPatientThanTheWait(t *testing.T) {
	p := newSlowPayments(t, httponce.Route{Wait: time.Hour})
	post := func(ctx context.Context) (*http.Response, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL+"/payments", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Idempotency-Key", "k")
		return p.Client().Do(r)
	}
	for _, calls := range []int{1, 2} { // the first, and a copy that waits
		ctx, gone := context.WithCancel(t.Context())
		go func() {
			p.begun(calls)
			gone()
		}()
		if _, err := post(ctx); err == nil {
			t.Fatal("it has an answer: the test is blind")
		}
	}
	if s := <-p.served; s.Waited == 0 {
		t.Errorf("Observe got %+v, want the copy that has left", s)
	}
	go func() {
		p.begun(2)
		p.letGo()
	}()
	res, err := post(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if g := read(t, res); g.status != http.StatusCreated || g.mark != "true" {
		t.Errorf("it got %+v", g)
	}
}

// A shutdown waits for the handler, and no longer for the requests that wait for its answer, however long they might.
func TestAShutdownEndsWithTheHandler(t *testing.T) {
	p := newSlowPayments(t, httponce.Route{Wait: time.Hour})
	answers := make(chan got, 2)
	for i := range 2 {
		go func() {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.URL+"/payments", strings.NewReader("{}"))
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("Idempotency-Key", "k")
			res, err := p.Client().Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			answers <- read(t, res)
		}()
		p.begun(i + 1)
	}
	ended := make(chan error)
	p.Config.RegisterOnShutdown(p.letGo)
	go func() { ended <- p.Config.Shutdown(t.Context()) }()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for range 2 {
		if g := <-answers; g.status != http.StatusCreated || g.body != "paid" {
			t.Errorf("one got %+v", g)
		}
	}
}
