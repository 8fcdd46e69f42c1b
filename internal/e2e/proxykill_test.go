package e2e

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"
)

// victims are who is killed.
type victims struct {
	name            string
	proxy, upstream bool
}

var allVictims = []victims{
	{"the proxy", true, false},
	{"the upstream", false, true},
	{"both", true, true},
}

// sidecar is `everonce proxy` as a process, and a service behind it as another.
type sidecar struct {
	stage    stage
	spec     upstreamSpec
	store    string
	flags    []string
	proxy    *child
	upstream *child
}

func newSidecar(t *testing.T, flags ...string) *sidecar {
	t.Helper()
	s := &sidecar{flags: flags, store: filepath.Join(t.TempDir(), "proxy.db")}
	control := httptest.NewServer(&s.stage)
	t.Cleanup(control.Close)
	s.spec = upstreamSpec{Listen: freeAddr(t), Ledger: filepath.Join(t.TempDir(), "ledger"), Stage: control.URL}
	s.upstream = startUpstream(t, s.spec)
	s.proxy = startProxy(t, "127.0.0.1:0", s.spec.Listen, s.store, flags...)
	return s
}

// kill kills, and starts the same again where it was.
func (s *sidecar) kill(t *testing.T, v victims, between func()) {
	t.Helper()
	if v.proxy {
		s.proxy.kill()
	}
	if v.upstream {
		s.upstream.kill()
	}
	between()
	if v.upstream {
		s.upstream = startUpstream(t, s.spec)
	}
	if v.proxy {
		s.proxy = startProxy(t, s.proxy.addr, s.spec.Listen, s.store, s.flags...)
	}
}

// killedAt sends an order, kills when it has come to a moment, lets what is left alive end its work, and
// sends it again until there is an answer.
func (s *sidecar) killedAt(t *testing.T, moment string, v victims, order string) answer {
	t.Helper()
	once, until := clients(t, time.Minute)
	here, skipFailed, done := s.stage.hold(moment)
	first := make(chan struct{})
	go func() {
		defer close(first)
		_, _ = post(t.Context(), once, s.proxy.addr, order) //nolint:errcheck // it is cut off, or answered as unknown
	}()
	<-here
	s.kill(t, v, func() {
		close(skipFailed)
		if !v.upstream {
			<-done // it goes on without the proxy
		}
	})
	<-first
	a, err := post(t.Context(), until, s.proxy.addr, order)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestProxyKilled kills the proxy, its upstream, and both, with SIGKILL, when an order has arrived, when it is done
// and not answered, and when it was answered. There is one effect at the most, one after the unknown was settled by
// the upstream's own ledger, and an answer that was saved is not lost.
func TestProxyKilled(t *testing.T) {
	t.Parallel()
	for _, moment := range []string{momentArrived, momentDone} {
		for _, v := range allVictims {
			t.Run(v.name+" when the order is "+moment, func(t *testing.T) {
				t.Parallel()
				s := newSidecar(t)
				const order = "order-7"
				a := s.killedAt(t, moment, v, order)
				effects := readEffects(t, s.spec.Ledger)[order]
				if want := map[bool]int{true: 1}[moment == momentDone || !v.upstream]; effects != want || !a.unknown() {
					t.Fatalf("%d effects, want %d; the client was answered %d %s", effects, want, a.status, a.body)
				}
				settleOrder(t, s.store, order, effects == 1)
				s.audit(t, order, effects == 1)
			})
		}
	}
	for _, v := range allVictims {
		t.Run(v.name+" when the order is answered", func(t *testing.T) {
			t.Parallel()
			s := newSidecar(t)
			const order = "order-7"
			once, _ := clients(t, time.Minute)
			first, err := post(t.Context(), once, s.proxy.addr, order)
			if err != nil || first.status != http.StatusCreated || first.marker != "" {
				t.Fatalf("%d %s, %v", first.status, first.body, err)
			}
			s.kill(t, v, func() {})
			if replay := s.audit(t, order, false); !first.same(replay) || replay.marker == "" {
				t.Errorf("the answer was %+v, and is %+v", first, replay)
			}
		})
	}
}

// audit sends an order until it gets a final answer, and reads the ledger. settled: it is done, with an unknown answer.
func (s *sidecar) audit(t *testing.T, order string, settled bool) answer {
	t.Helper()
	want := http.StatusCreated
	if settled {
		want = http.StatusOK
	}
	_, until := clients(t, time.Minute)
	a, err := post(t.Context(), until, s.proxy.addr, order)
	if err != nil || a.status != want {
		t.Errorf("in the end the client was answered %d %s, %v; want %d", a.status, a.body, err, want)
	}
	if effects := readEffects(t, s.spec.Ledger); effects[order] != 1 || len(effects) != 1 {
		t.Errorf("the upstream's ledger has %v", effects)
	}
	return a
}

// TestProxyKilledIsNotBlind: where the user allowed a second execution, there is one. If the ledger did not show it,
// TestProxyKilled could not fail.
func TestProxyKilledIsNotBlind(t *testing.T) {
	t.Parallel()
	s := newSidecar(t, "--unknown", "reexecute")
	const order = "order-7"
	a := s.killedAt(t, momentDone, allVictims[1], order)
	if effects := readEffects(t, s.spec.Ledger)[order]; effects != 2 || a.status != http.StatusCreated {
		t.Errorf("%d effects, and the answer %d %s; want two and 201", effects, a.status, a.body)
	}
}
