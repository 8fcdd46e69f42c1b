// Package lookalike counts operations that may be one operation under two keys.
//
// everonce recognises a duplicate by its key. A sender that makes a new key for each try defeats it, and nothing
// fails: both tries take effect. Some message libraries do that by default. A [Counter] cannot prove it either,
// because two customers may order the same; but a share that is higher than your business explains is a sender to
// look at.
package lookalike

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// Counter is an [everonce.Observer] that counts operations whose fingerprint was seen under another key of the same
// scope within the window. It changes nothing, and asks the store nothing. It sees one process: each counts for
// itself. It is safe for concurrent use.
//
// It compares the fingerprint of the operation: for a message its body, for an HTTP request its method, path, query
// and body, unless their Fingerprint says otherwise. A body with a field that is new at each try, such as the time
// of sending, is no lookalike: exclude that field from the fingerprint. Messages that a broker makes again and
// again, like the ticks of a schedule of NATS, have one body and many keys: their consumers need no counter.
type Counter struct {
	window time.Duration

	mu     sync.Mutex
	counts Counts
	seen   map[content]sight
	ring   []content // in the order of their first sight; what is overwritten is forgotten
	next   int
}

// Options are the options of a counter. The zero value of each field is its default.
type Options struct {
	// Window is how long a fingerprint is remembered after it was last seen. Default 1 h.
	Window time.Duration
	// Capacity is how many fingerprints are remembered, at most. Each takes about 250 bytes. The oldest are
	// forgotten first. Default 65,536.
	Capacity int
}

// Counts are the counts since the counter was made.
type Counts struct {
	// Operations took effect or were refused for good, each once: duplicates under their own key are not among them.
	Operations int64
	// Lookalikes counts operations whose fingerprint was seen under another key.
	Lookalikes int64
	// Uncompared counts operations without a fingerprint.
	Uncompared int64
}

// Share is Lookalikes as a share of the operations that were compared: from 0 to 1, and 0 if no operation was
// compared.
func (c Counts) Share() float64 {
	if compared := c.Operations - c.Uncompared; compared > 0 {
		return float64(c.Lookalikes) / float64(compared)
	}
	return 0
}

// content is a fingerprint in its scope. Its Alg tells apart what was compared in different ways.
type content struct {
	scope everonce.Scope
	driver.Fingerprint
}

// sight is when a content was last seen, and under which key.
type sight struct {
	key driver.KeyHash
	at  time.Time
}

// NewCounter returns a counter, for Options.Observer of a receiver; [everonce.JoinObservers] puts it beside another
// observer. The error wraps [everonce.ErrInvalidArgument].
func NewCounter(opts *Options) (*Counter, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	o.Window, o.Capacity = cmp.Or(o.Window, time.Hour), cmp.Or(o.Capacity, 1<<16)
	if o.Window < 0 || o.Capacity < 0 {
		return nil, fmt.Errorf("%w: lookalike: Window and Capacity must not be negative", everonce.ErrInvalidArgument)
	}
	return &Counter{window: o.Window, seen: map[content]sight{}, ring: make([]content, 0, o.Capacity)}, nil
}

// Start implements [everonce.Observer].
func (c *Counter) Start(ctx context.Context, _ everonce.Op) context.Context { return ctx }

// End implements [everonce.Observer].
func (c *Counter) End(_ context.Context, ev everonce.Observation) {
	if ev.Step != "" || ev.Attempt == 0 || ev.Outcome != everonce.Executed && ev.Outcome != everonce.Rejected {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts.Operations++
	key, err := driver.ParseKeyHash(ev.KeyHash)
	if err != nil || driver.Fingerprint(ev.Fingerprint).IsZero() {
		c.counts.Uncompared++
		return
	}
	it, now := content{ev.Scope, driver.Fingerprint(ev.Fingerprint)}, time.Now()
	before, known := c.seen[it]
	if known && before.key != key && now.Sub(before.at) <= c.window {
		c.counts.Lookalikes++
	}
	if !known {
		c.remember(it)
	}
	c.seen[it] = sight{key, now}
}

// remember makes room for a content.
func (c *Counter) remember(it content) {
	if len(c.ring) < cap(c.ring) {
		c.ring = append(c.ring, it)
		return
	}
	delete(c.seen, c.ring[c.next])
	c.ring[c.next] = it
	c.next = (c.next + 1) % len(c.ring)
}

// Counts returns the counts so far.
func (c *Counter) Counts() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts
}
