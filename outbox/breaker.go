package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/internal/retry"
)

// lane is the events of a topic that go to one destination: see [Destinations].
type lane struct{ topic, destination string }

// gate is the state of a lane in a relay: how many of its events are in flight, and whether its destination answers.
type gate struct {
	inFlight int
	failures int       // consecutive calls of the publisher in which the destination neither took nor refused any event
	since    time.Time // time of the first of them
	pauses   int       // consecutive pauses
	closed   time.Time // nothing is published until then; then one call probes the destination
	probing  bool      // the probe is in progress
}

// idle reports whether the gate holds nothing worth keeping.
func (g *gate) idle(now time.Time) bool {
	return g.inFlight == 0 && g.failures == 0 && g.closed.IsZero() || g.inFlight == 0 && !g.closed.IsZero() && now.Sub(g.closed) > 10*maxPause
}

// breakAfter is how many consecutive calls must fail before a topic is paused. One is enough if the destination is
// known to be unavailable.
const breakAfter = 5

// minPause and maxPause bound the pause of a topic.
const (
	minPause = time.Second
	maxPause = time.Minute
)

// maxWait is the longest wait of an event whose destination, one of several, did not answer.
const maxWait = 10 * time.Minute

// lanes returns the topics that are not to be claimed from.
func (r *Relay) lanes() (only, except []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	inFlight, shut := make(map[string]int), make(map[string]bool)
	for l, g := range r.gates {
		inFlight[l.topic] += g.inFlight
		shut[l.topic] = shut[l.topic] || l.destination == "" && (now.Before(g.closed) || g.probing)
		if g.idle(now) {
			delete(r.gates, l)
		}
	}
	for topic, n := range inFlight {
		if shut[topic] || n > 0 && n >= r.set.InFlight/2 {
			except = append(except, topic)
		}
	}
	return nil, except
}

// admitAll decides which claimed events are published now, and sets why the others are held.
func (r *Relay) admitAll(rows []row) {
	for i := range rows {
		r.setLane(&rows[i])
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	type key struct{ topic, key string }
	lines := make(map[key]*row) // the last event of each order key
	for i := range rows {
		w := &rows[i]
		k := key{w.lane.topic, w.event.Key}
		before := lines[k]
		if k.key != "" {
			lines[k] = w
		}
		switch {
		case w.held != nil: // it cannot be read
		case before != nil && (before.held != nil || before.lane != w.lane): // calls to different destinations have no order
			w.held = errBehind
		default:
			r.admit(w, now)
		}
	}
}

// setLane completes an event, and sets its lane.
func (r *Relay) setLane(w *row) {
	_, err := w.read()
	w.lane = lane{topic: w.common.Group}
	if err != nil { // no publisher can take it
		w.held = everonce.Permanent("corrupt", err, nil)
		return
	}
	to, ok := r.publisher.(Destinations)
	if !ok {
		return
	}
	w.held = safely(func() error {
		w.lane.destination = to.Destination(context.Background(), &w.event)
		return nil
	})
}

// admit lets an event pass to its destination, or sets when to try it again. Claims leave out a topic that is paused as
// a whole; of a topic with several destinations they cannot leave out one.
func (r *Relay) admit(w *row, now time.Time) {
	g := r.gates[w.lane]
	if g == nil {
		g = new(gate)
		r.gates[w.lane] = g
	}
	one := w.lane.destination != ""
	switch left := g.closed.Sub(now); {
	case one && left > 0:
		w.held = RetryAfter(errPaused, left+retry.Jitter(left/4+1)) // spread the retries
		return
	case one && (g.probing || g.failures > 0 && g.inFlight >= max(r.set.InFlight/4, 1)):
		w.held = errPaused
		return
	case !g.closed.IsZero() && left <= 0:
		w.probe = true
		g.probing = true
	}
	g.inFlight++
}

// halfOf is how long an event waits that one of several destinations did not answer: half of the time since the
// destination last answered.
func halfOf(silent time.Duration) time.Duration { return min(silent/2, maxWait) }

// errPaused says that an event was not sent because its destination, one of several, does not answer, or is being
// probed.
var errPaused = fmt.Errorf("%w: not sent: events before it to the same destination have no answer", ErrUnavailable)

// release removes events of a lane from those in flight.
func (r *Relay) release(l lane, rows []row) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.gates[l]
	g.inFlight -= len(rows)
	g.probing = g.probing && !rows[0].probe
}

// recordCall records how a call of the publisher ended, and returns for how long the destination has not answered.
func (r *Relay) recordCall(l lane, probe bool, errs []error) (silent time.Duration) {
	if len(errs) == 0 {
		return 0
	}
	unavailable := false
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.gates[l]
	for _, err := range errs {
		var refused *everonce.PermanentError
		if err == nil || errors.As(err, &refused) { // the destination answers
			g.failures, g.since, g.pauses, g.closed = 0, time.Time{}, 0, time.Time{}
			return 0
		}
		unavailable = unavailable || errors.Is(err, ErrUnavailable)
	}
	now := time.Now()
	if g.failures == 0 {
		g.since = now
	}
	silent = now.Sub(g.since)
	if !probe && !g.closed.IsZero() { // the call began before the pause: only a probe lengthens the pause
		return silent
	}
	if g.failures++; unavailable {
		g.failures = max(g.failures, breakAfter)
	}
	if g.failures < breakAfter {
		return silent
	}
	if g.pauses++; g.pauses == 1 {
		r.set.Log.Warn("outbox: a topic, or one of its destinations, is paused: none of its events could be published", "topic", l.topic, "error", errors.Join(errs[0]))
	}
	g.closed = now.Add(retry.Within(minPause, maxPause, g.pauses))
	return silent
}
