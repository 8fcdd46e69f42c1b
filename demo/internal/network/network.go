// Package network is the demo's network: it stands between the client and the service, loses requests
// and answers, delays some and delivers some twice, and counts what it did.
//
// Losses look as they do in life: the connection breaks, and the client cannot tell whether its request
// arrived. And what was sent arrives, whether or not the client still waits for it.
package network

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"
)

// forwardLimit bounds one delivery.
const forwardLimit = 15 * time.Second

// Stats counts what the network did.
type Stats struct {
	// Deliveries counts requests that the network handed to the service, duplicates included.
	Deliveries int64
	// RequestsLost and AnswersLost count the network's own losses, not requests that a killed service did not answer.
	RequestsLost int64
	AnswersLost  int64
	Duplicated   int64
	Delayed      int64
	// Replayed counts answers of the service, lost ones included, that it marked as replayed.
	Replayed int64
}

// Network is an http.Handler that clients take for the service.
type Network struct {
	model    Model
	key      func(*http.Request) string
	replayed func(http.Header) bool
	client   http.Client
	underway sync.WaitGroup // packets that are not delivered yet, or not answered

	mu     sync.Mutex
	target string
	sent   map[string]int // requests so far, by key
	flying map[string]int // deliveries that the service is working on, by key
	stats  Stats
}

// New returns a network. key names the operation of a request; replayed tells a replayed answer.
func New(model Model, key func(*http.Request) string, replayed func(http.Header) bool) *Network {
	return &Network{
		model: model, key: key, replayed: replayed, sent: make(map[string]int), flying: make(map[string]int),
		// Without keep-alive: over a reused connection, net/http may repeat a request automatically, and then more requests
		// would be delivered than are counted.
		client: http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: forwardLimit},
	}
}

// locked runs f, which may use all that the mutex guards.
func (n *Network) locked(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

// Connect sets the address of the service, host and port. Requests are delivered there from now on.
func (n *Network) Connect(addr string) { n.locked(func() { n.target = addr }) }

// Stats returns the counts so far.
func (n *Network) Stats() (s Stats) {
	n.locked(func() { s = n.stats })
	return s
}

// InFlight returns how many operations the service is working on, as far as the network can see: a delivery
// was handed over, and there is no answer.
func (n *Network) InFlight() (operations int) {
	n.locked(func() { operations = len(n.flying) })
	return operations
}

// Wait waits for the packets that are still under way. No request may come in any more.
func (n *Network) Wait() { n.underway.Wait() }

// ServeHTTP takes a request, and does to it what its fate is.
func (n *Network) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	p := packet{r, body, n.key(r)}
	fate := n.fateOf(p.key)
	if fate.LoseRequest {
		panic(http.ErrAbortHandler) // breaks the connection
	}
	first := make(chan *answer, 1)
	n.later(fate.Delay, func() { first <- n.deliver(p, fate.LoseAnswer) })
	if fate.Duplicate {
		n.later(fate.Delay+fate.Gap, func() { n.deliver(p, false) }) // the client does not wait for a second answer
	}
	select {
	case a := <-first:
		if a == nil {
			panic(http.ErrAbortHandler)
		}
		maps.Copy(w.Header(), a.header)
		w.WriteHeader(a.status)
		_, _ = w.Write(a.body) //nolint:errcheck // the client is gone
	case <-r.Context().Done(): // the client gave up; the packet is on its way all the same
	}
}

// later runs f, for a packet that is under way, after a delay and whatever becomes of the client.
func (n *Network) later(delay time.Duration, f func()) {
	time.AfterFunc(delay, func() {
		defer n.underway.Done()
		f()
	})
}

// fateOf draws what happens to a request, and counts it. Its packets are under way from here on.
func (n *Network) fateOf(key string) Fate {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sent[key]++
	f := n.model.Fate(key, n.sent[key])
	if f.LoseRequest {
		n.stats.RequestsLost++
		return f
	}
	n.underway.Add(1)
	if f.Delay > 0 {
		n.stats.Delayed++
	}
	if f.Duplicate {
		n.stats.Duplicated++
		n.underway.Add(1)
	}
	return f
}

// packet is a request on its way.
type packet struct {
	request *http.Request
	body    []byte
	key     string
}

// answer is an answer on its way back.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// deliver hands a packet to the service and returns its answer, or nil if it was lost or the service did not answer.
func (n *Network) deliver(p packet, lose bool) *answer {
	trace, land := n.flight(p.key)
	defer land()
	req := p.request.Clone(httptrace.WithClientTrace(context.Background(), trace))
	req.RequestURI, req.URL.Scheme, req.Body = "", "http", io.NopCloser(bytes.NewReader(p.body))
	n.locked(func() { req.URL.Host = n.target }) // req.Host stays the one that the client asked for
	res, err := n.client.Do(req)
	if err != nil {
		return nil
	}
	defer res.Body.Close() //nolint:errcheck // it was only read
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil
	}
	n.locked(func() {
		if n.replayed(res.Header) {
			n.stats.Replayed++
		}
		if lose {
			n.stats.AnswersLost++
		}
	})
	if lose {
		return nil
	}
	return &answer{res.StatusCode, res.Header, body}
}

// flight counts one delivery while the service works on it. The trace tells when the service has the request; land
// is called when there is an answer, or will not be one.
func (n *Network) flight(key string) (trace *httptrace.ClientTrace, land func()) {
	var flying, landed bool
	trace = &httptrace.ClientTrace{WroteRequest: func(info httptrace.WroteRequestInfo) {
		if info.Err != nil {
			return
		}
		n.locked(func() {
			n.stats.Deliveries++
			if !landed { // else the answer was faster than the news that the request is out
				flying = true
				n.flying[key]++
			}
		})
	}}
	return trace, func() {
		n.locked(func() {
			landed = true
			if !flying {
				return
			}
			if n.flying[key]--; n.flying[key] == 0 {
				delete(n.flying, key)
			}
		})
	}
}
