package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// The directions of a connection, as toxiproxy names them.
const (
	requestWay = "upstream"
	answerWay  = "downstream"
)

// cut is what happens to a connection, at one phase of a request.
type cut struct {
	phase  string
	way    string // empty: the address is closed
	toxic  string
	amount string
	// done: the upstream has the request whole, and its effect happens all the same.
	done bool
	// heard: the answer arrives nevertheless.
	heard bool
}

// cuts are all phases. The request is some 4 kB, a head of some hundred bytes and a body; so is the answer.
var cuts = []cut{
	{phase: "before a connection"},
	{phase: "before the request's head", way: requestWay, toxic: "limit_data", amount: `"bytes":0`},
	{phase: "in the request's head", way: requestWay, toxic: "limit_data", amount: `"bytes":40`},
	{phase: "in the request's body", way: requestWay, toxic: "limit_data", amount: `"bytes":2000`},
	{phase: "reset at the request", way: requestWay, toxic: "reset_peer", amount: `"timeout":0`},
	{phase: "half open, the request is swallowed", way: requestWay, toxic: "timeout", amount: `"timeout":0`},
	{phase: "before the answer", way: answerWay, toxic: "limit_data", amount: `"bytes":0`, done: true},
	{phase: "in the answer's head", way: answerWay, toxic: "limit_data", amount: `"bytes":20`, done: true},
	{phase: "in the answer's body", way: answerWay, toxic: "limit_data", amount: `"bytes":2000`, done: true},
	{phase: "reset at the answer", way: answerWay, toxic: "reset_peer", amount: `"timeout":0`, done: true},
	{phase: "half open, the answer is swallowed", way: answerWay, toxic: "timeout", amount: `"timeout":0`, done: true},
	{phase: "slow request", way: requestWay, toxic: "slicer", amount: `"average_size":200,"size_variation":100,"delay":2000`, done: true, heard: true},
	{phase: "slow answer", way: answerWay, toxic: "slicer", amount: `"average_size":200,"size_variation":100,"delay":2000`, done: true, heard: true},
}

// wires are the two connections of a proxy, each through a toxiproxy.
type wires struct {
	ledger        ledger
	front, behind *toxiproxy.Proxy // to the proxy, and from it to the upstream
	store         string
	proxy         *child
}

// The proxy gives an upstream up before its client gives it up.
const (
	upstreamTimeout = "2s"
	clientPatience  = 3 * time.Second
)

func newWires(t *testing.T) *wires {
	t.Helper()
	w := &wires{store: filepath.Join(t.TempDir(), "proxy.db")}
	upstream := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // not all of it: no order
		}
		order, _, _ := strings.Cut(string(body), "\n")
		line, err := w.ledger.enter(order)
		if err != nil {
			t.Error(err)
		}
		rw.Header().Set("Location", fmt.Sprint("/lines/", line))
		rw.WriteHeader(http.StatusCreated)
		fmt.Fprintf(rw, "%s is line %d\n%s", order, line, strings.Repeat("a line of the receipt\n", orderItems))
	}))
	t.Cleanup(upstream.Close)
	w.behind = poisoned(t, upstream.Listener.Addr().String())
	w.proxy = startProxy(t, "127.0.0.1:0", w.behind.Listen, w.store, "--deadline", upstreamTimeout)
	w.front = poisoned(t, w.proxy.addr)
	return w
}

// poisoned returns a proxy that can be poisoned.
func poisoned(t *testing.T, upstream string) *toxiproxy.Proxy {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := toxiproxy.NewProxy(server, "p", "127.0.0.1:0", upstream)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return p
}

// inflict does to a connection what is to happen to it, and returns what heals it.
func (c cut) inflict(t *testing.T, p *toxiproxy.Proxy) (heal func()) {
	t.Helper()
	if c.way == "" {
		p.Stop()
		return func() {
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
		}
	}
	text := fmt.Sprintf(`{"name":"cut","type":%q,"stream":%q,"attributes":{%s}}`, c.toxic, c.way, c.amount)
	if _, err := p.Toxics.AddToxicJson(strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := p.Toxics.RemoveToxic(t.Context(), "cut"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestProxyCutFromTheClient cuts the connection between a client and `everonce proxy` at each phase of a request.
// Nothing is unknown of that: the client sends it again, and there is one effect.
func TestProxyCutFromTheClient(t *testing.T) {
	t.Parallel()
	w := newWires(t)
	once, until := clients(t, clientPatience)
	answers := map[string]answer{}
	for i, c := range cuts {
		order := fmt.Sprintf("order-%d", i)
		once.CloseIdleConnections() // what is cut is a connection of this request's
		heal := c.inflict(t, w.front)
		first, err := post(t.Context(), once, w.front.Listen, order)
		if heard := err == nil; heard != c.heard {
			t.Errorf("%s: the client got %+v, %v", c.phase, first, err)
		}
		heal()
		if got := len(w.ledger.lines()[order]); got > 1 || c.heard && got != 1 || !c.done && got != 0 {
			t.Errorf("%s: %d effects before the client tried again", c.phase, got)
		}
		final, err := post(t.Context(), until, w.front.Listen, order)
		if err != nil || final.status != http.StatusCreated || (final.marker != "") != c.done {
			t.Errorf("%s: in the end the client got %d %q, %v", c.phase, final.status, final.marker, err)
		}
		answers[order] = final
	}
	w.audit(t, until, answers)
}

// TestProxyCutFromTheUpstream cuts the connection between `everonce proxy` and its upstream at each phase of a request.
// Only where nothing was written it is sent again; else it is unknown, until it is settled by the upstream's ledger.
func TestProxyCutFromTheUpstream(t *testing.T) {
	t.Parallel()
	w := newWires(t)
	once, until := clients(t, time.Minute)
	answers := map[string]answer{}
	for i, c := range cuts {
		order := fmt.Sprintf("order-%d", i)
		heal := c.inflict(t, w.behind)
		first, err := post(t.Context(), once, w.front.Listen, order)
		if err != nil || c.heard != (first.status == http.StatusCreated) || !c.heard && first.status != http.StatusBadGateway && first.status != http.StatusGatewayTimeout {
			t.Errorf("%s: the client got %d %s, %v", c.phase, first.status, first.body, err)
		}
		heal()
		again, err := post(t.Context(), until, w.front.Listen, order)
		if err != nil {
			t.Fatalf("%s: %v", c.phase, err)
		}
		effects := len(w.ledger.lines()[order])
		unknown := c.way != "" && !c.heard
		switch {
		case again.unknown() != unknown:
			t.Errorf("%s: the client got %d %q %s", c.phase, again.status, again.marker, again.body)
		case unknown:
			if want := map[bool]int{true: 1}[c.done]; effects != want {
				t.Errorf("%s: %d effects before it was settled, want %d", c.phase, effects, want)
			}
			settleOrder(t, w.store, order, effects == 1)
			if again, err = post(t.Context(), until, w.front.Listen, order); err != nil {
				t.Fatalf("%s: %v", c.phase, err)
			}
		}
		want := http.StatusCreated
		if unknown && c.done {
			want = http.StatusOK // done, with an unknown answer
		}
		if again.status != want || c.heard && !first.same(again) {
			t.Errorf("%s: in the end the client got %d %q, after %d; want %d", c.phase, again.status, again.marker, first.status, want)
		}
		answers[order] = again
	}
	w.audit(t, until, answers)
}

// audit kills the proxy, and asks the next one for every answer; and it reads the upstream's own ledger.
func (w *wires) audit(t *testing.T, client *http.Client, answers map[string]answer) {
	t.Helper()
	w.proxy.kill()
	proxy := startProxy(t, "127.0.0.1:0", w.behind.Listen, w.store)
	for order, a := range answers {
		replay, err := post(t.Context(), client, proxy.addr, order)
		if err != nil || replay.marker == "" || !a.same(replay) {
			t.Errorf("%s: the saved answer was %d %s, and is %d %s %q, %v", order, a.status, a.location, replay.status, replay.location, replay.marker, err)
		}
	}
	lines := w.ledger.lines()
	for order := range answers {
		if len(lines[order]) != 1 {
			t.Errorf("%s has the lines %v in the upstream's ledger", order, lines[order])
		}
	}
	if len(lines) != len(cuts) {
		t.Errorf("%d orders are in the upstream's ledger, want %d", len(lines), len(cuts))
	}
}
