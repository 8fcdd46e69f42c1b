package oncetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// GatewayOptions are the options of a gateway. The zero value of each field is its default.
type GatewayOptions struct {
	// Deduplicates makes the gateway an idempotent receiver itself: a key that it knows is answered with the first
	// receipt, and has no second effect. Default: every call that arrives has an effect.
	Deduplicates bool
	// Plan decides which calls fail, and how. Default: none.
	Plan Plan
}

// Gateway is a fake of the other side, which charges, mails or ships, out of reach of any transaction. It counts what
// arrived and what took effect, so it is both the truth that a test asks for and the ledger that a reconciler asks.
// It is safe for concurrent use.
type Gateway struct {
	deduplicates bool
	n            *numbered

	mu       sync.Mutex
	keys     []string // in the order of their first effect
	receipts map[string][]Receipt
	calls    map[string]int
	effects  int
}

// Receipt is a gateway's answer.
type Receipt struct {
	// ID is new for every effect.
	ID string `json:"id"`
	// Request is what was asked for.
	Request string `json:"request"`
}

// ErrOtherRequest is the answer of a deduplicating gateway to a key that it knows with another request.
var ErrOtherRequest = errors.New("oncetest: gateway: the key was used with another request")

// NewGateway returns a gateway that has had no effects yet.
func NewGateway(opts *GatewayOptions) *Gateway {
	if opts == nil {
		opts = &GatewayOptions{}
	}
	return &Gateway{
		deduplicates: opts.Deduplicates, n: &numbered{plan: opts.Plan},
		receipts: make(map[string][]Receipt), calls: make(map[string]int),
	}
}

// With returns a client of the same gateway under another plan, as the process reaches it after a restart.
func (g *Gateway) With(plan Plan) *Client { return &Client{g, &numbered{plan: plan}} }

// Call has an effect, or fails as the plan says. key is the downstream key; request is what is asked for, in the
// caller's own words. The errors of planned faults wrap [ErrInjected].
func (g *Gateway) Call(ctx context.Context, key, request string) (Receipt, error) {
	return (&Client{g, g.n}).Call(ctx, key, request)
}

// Client calls a [Gateway] under its own plan.
type Client struct {
	gateway *Gateway
	n       *numbered
}

// Call is [Gateway.Call].
func (c *Client) Call(ctx context.Context, key, request string) (Receipt, error) {
	if err := ctx.Err(); err != nil {
		return Receipt{}, err
	}
	call, fault := c.n.next(OpEffect, key)
	return suffer(ctx, call, fault, func() (Receipt, error) { return c.gateway.take(key, request) })
}

// take is the arrival of a call.
func (g *Gateway) take(key, request string) (Receipt, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls[key]++
	had := g.receipts[key]
	if g.deduplicates && len(had) > 0 {
		if had[0].Request != request {
			return Receipt{}, ErrOtherRequest
		}
		return had[0], nil
	}
	if len(had) == 0 {
		g.keys = append(g.keys, key)
	}
	g.effects++
	r := Receipt{ID: fmt.Sprintf("r-%d", g.effects), Request: request}
	g.receipts[key] = append(had, r)
	return r, nil
}

// Find returns the first receipt of a key, and whether there is one: the truthful answer for a reconciler.
func (g *Gateway) Find(key string) (Receipt, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if had := g.receipts[key]; len(had) > 0 {
		return had[0], true
	}
	return Receipt{}, false
}

// Effects counts the effects under a key.
func (g *Gateway) Effects(key string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.receipts[key])
}

// Calls counts the calls with a key that arrived.
func (g *Gateway) Calls(key string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.calls[key]
}

// Requested returns the keys under which the request took effect, one for every effect. It serves to count by what
// the request says.
func (g *Gateway) Requested(request string) (keys []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, k := range g.keys {
		for _, r := range g.receipts[k] {
			if r.Request == request {
				keys = append(keys, k)
			}
		}
	}
	return keys
}

// Total counts all effects.
func (g *Gateway) Total() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.effects
}
