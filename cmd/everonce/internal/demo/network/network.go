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
	// RequestsLost and AnswersLost count the network's own losses. What a killed service did not answer
	// is none of them.
	RequestsLost int64
	AnswersLost  int64
	Duplicated   int64
	Delayed      int64
	// Replayed counts answers of the service, lost ones included, that it marked as replayed.
	Replayed int64
}

// Network is an http.Handler that clients take for the service.
type Network struct {
	model  Model
	key    func(*http.Request) string
	replay func(http.Header) bool
	client *http.Client

	mu       sync.Mutex
	target   string
	sent     map[string]int // requests so far, by key
	flying   map[string]int // deliveries that the service is working on, by key
	underway int            // packets that have not been delivered, or not been answered
	arrived  *sync.Cond     // underway has fallen
	stats    Stats
}

// New returns a network. key names the operation of a request; replayed tells a replayed answer.
func New(model Model, key func(*http.Request) string, replayed func(http.Header) bool) *Network {
	n := &Network{
		model: model, key: key, replay: replayed,
		// Without keep-alive: over a connection that is used again, net/http may repeat a request by
		// itself, and then more would be delivered than is counted.
		client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
		sent:   make(map[string]int),
		flying: make(map[string]int),
	}
	n.arrived = sync.NewCond(&n.mu)
	return n
}

// Connect sets the service's address, host and port, to which requests are delivered from now on.
func (n *Network) Connect(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.target = addr
}

// Stats returns the counts so far.
func (n *Network) Stats() Stats {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.stats
}

// InFlight returns of how many operations a delivery is being worked on, as far as the network can see: it
// was handed to the service, and there is no answer.
func (n *Network) InFlight() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.flying)
}

// Close waits for what is still under way.
func (n *Network) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for n.underway > 0 {
		n.arrived.Wait()
	}
}

// ServeHTTP takes a request, and does to it what its fate is.
func (n *Network) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	key := n.key(r)
	fate := n.fateOf(key)
	if fate.LoseRequest {
		panic(http.ErrAbortHandler) // breaks the connection
	}
	packet := &packet{host: r.Host, method: r.Method, uri: r.URL.RequestURI(), header: r.Header.Clone(), body: body, key: key}
	first := make(chan *answer, 1)
	n.later(fate.Delay, func() { first <- n.deliver(packet, fate.LoseAnswer) })
	if fate.Duplicate {
		n.later(fate.Delay+fate.Gap, func() { n.deliver(packet, false) }) // nobody waits for a second answer
	}
	select {
	case a := <-first:
		if a == nil {
			panic(http.ErrAbortHandler)
		}
		a.write(w)
	case <-r.Context().Done(): // the client gave up; the packet is on its way all the same
	}
}

// later runs f, for a packet that is under way, after a delay and whatever becomes of the client.
func (n *Network) later(delay time.Duration, f func()) {
	time.AfterFunc(delay, func() {
		f()
		n.mu.Lock()
		defer n.mu.Unlock()
		n.underway--
		n.arrived.Broadcast()
	})
}

// fateOf draws what happens to a request. Its packets are under way from here on.
func (n *Network) fateOf(key string) Fate {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sent[key]++
	f := n.model.Fate(key, n.sent[key])
	switch {
	case f.LoseRequest:
		n.stats.RequestsLost++
		return f
	case f.Delay > 0:
		n.stats.Delayed++
	}
	n.underway++
	if f.Duplicate {
		n.stats.Duplicated++
		n.underway++
	}
	return f
}

// packet is a request on its way.
type packet struct {
	host        string // the one that the client asked for, wherever the service listens just now
	method, uri string
	header      http.Header
	body        []byte
	key         string
}

// answer is an answer on its way back.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// deliver hands a packet to the service and returns its answer, or nil where there is none: because it was
// lost, or because nobody answers.
func (n *Network) deliver(p *packet, lose bool) *answer {
	n.mu.Lock()
	target := n.target
	n.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), forwardLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, p.method, "http://"+target+p.uri, bytes.NewReader(p.body))
	if err != nil {
		return nil
	}
	req.Host, req.Header = p.host, p.header.Clone()
	f := &flight{network: n, key: p.key}
	defer f.land()
	req = req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: f.takeOff}))
	res, err := n.client.Do(req)
	if err != nil {
		return nil
	}
	defer res.Body.Close() //nolint:errcheck // it was only read
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.replay(res.Header) {
		n.stats.Replayed++
	}
	if lose {
		n.stats.AnswersLost++
		return nil
	}
	return &answer{status: res.StatusCode, header: res.Header, body: body}
}

// flight is one delivery while the service works on it.
type flight struct {
	network *Network
	key     string
	flying  bool
	landed  bool
}

// takeOff is called when the service has the request.
func (f *flight) takeOff(info httptrace.WroteRequestInfo) {
	if info.Err != nil {
		return
	}
	n := f.network
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stats.Deliveries++
	if !f.landed { // else the answer was faster than the news that the request is out
		f.flying = true
		n.flying[f.key]++
	}
}

// land is called when there is an answer, or will not be one.
func (f *flight) land() {
	n := f.network
	n.mu.Lock()
	defer n.mu.Unlock()
	f.landed = true
	if !f.flying {
		return
	}
	if n.flying[f.key]--; n.flying[f.key] == 0 {
		delete(n.flying, f.key)
	}
}

func (a *answer) write(w http.ResponseWriter) {
	for name, values := range a.header {
		w.Header()[name] = values
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) //nolint:errcheck // the client is gone
}
