package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

const upstreamEnv = "EVERONCE_E2E_UPSTREAM"

// upstreamSpec is what a test tells the service behind a proxy, a process that it will kill.
type upstreamSpec struct {
	Listen string
	Ledger string // a file, with a line for every effect
	Stage  string // URL of the test's stage
}

// The moments of an order at which the test can hold the service.
const (
	momentArrived = "arrived" // and nothing was done
	momentDone    = "done"    // and not answered
)

// runUpstream is the service: it knows nothing of keys, and books whatever it is sent.
func runUpstream(raw string) error {
	var spec upstreamSpec
	if err := json.Unmarshal([]byte(raw), &spec); err != nil {
		return err
	}
	ledger, err := os.OpenFile(spec.Ledger, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(context.Background(), "tcp", spec.Listen)
	if err != nil {
		return err
	}
	fmt.Println(ln.Addr()) //nolint:forbidigo // it announces itself
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		order, _, _ := strings.Cut(string(body), "\n")
		enterStage(spec.Stage, momentArrived, order)
		if _, err := ledger.WriteString(order + "\n"); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		enterStage(spec.Stage, momentDone, order)
		w.Header().Set("Location", "/orders/"+order)
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, order+" is booked\n"+strings.Repeat("a line of the receipt\n", orderItems)) //nolint:errcheck // the proxy is gone
	})}
	return server.Serve(ln)
}

// enterStage returns when the test lets it go on.
func enterStage(stage, moment, order string) {
	res, err := http.Get(stage + "?" + url.Values{"moment": {moment}, "order": {order}}.Encode()) //nolint:gosec,noctx // the test's own
	if err == nil {
		_ = res.Body.Close() //nolint:errcheck // it is empty
	}
}

func startUpstream(t *testing.T, spec upstreamSpec) *child {
	t.Helper()
	raw, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), upstreamEnv+"="+string(raw))
	return startChild(t, cmd, func(line []byte) string { return string(line) })
}

// readEffects counts the lines of the upstream's ledger, by order.
func readEffects(t *testing.T, path string) map[string]int {
	t.Helper()
	effects := map[string]int{}
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return effects
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		effects[lines.Text()]++
	}
	return effects
}

// stage is where the service waits for the test.
type stage struct {
	mu         sync.Mutex
	held       string        // the moment at which the next order is held
	here       chan struct{} // closed when it has come there
	skipFailed chan struct{} // closed when it may go on
	done       chan struct{} // closed when the moment "done" has come
}

func (s *stage) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	moment := r.URL.Query().Get("moment")
	s.mu.Lock()
	var wait chan struct{}
	if moment == momentDone && s.done != nil {
		close(s.done)
		s.done = nil
	}
	if s.held == moment {
		s.held, wait = "", s.skipFailed
		close(s.here)
	}
	s.mu.Unlock()
	if wait != nil {
		select {
		case <-wait:
		case <-r.Context().Done(): // it was killed
		}
	}
}

// hold arms the stage for one order.
func (s *stage) hold(moment string) (here <-chan struct{}, skipFailed chan<- struct{}, done <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held, s.here, s.skipFailed, s.done = moment, make(chan struct{}), make(chan struct{}), make(chan struct{})
	return s.here, s.skipFailed, s.done
}
