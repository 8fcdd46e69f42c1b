package outbox

import (
	"errors"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/internal/retry"
)

// topic is what a relay knows of one: how many events of it are in its hands, and whether its destination answers.
type topic struct {
	inFlight int
	failures int       // calls of the publisher, one after the other, in which the destination took nothing and refused nothing
	closed   time.Time // until then nothing is published
	probing  bool      // closed is over: one call finds out
}

// breakAfter is how many calls fail before a topic is paused. If the destination is known to be unavailable, one is enough.
const breakAfter = 5

// minPause and maxPause bound the pause of a topic.
const (
	minPause = time.Second
	maxPause = time.Minute
)

// lanes returns the topics that are not to be claimed from.
func (r *Relay) lanes() (only, except []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for name, t := range r.topics {
		switch {
		case now.Before(t.closed), t.probing, t.inFlight > 0 && t.inFlight >= r.set.InFlight/2:
			except = append(except, name)
		case t.inFlight == 0 && t.failures == 0: // nothing to be remembered
			delete(r.topics, name)
		}
	}
	return nil, except
}

// taken notes events that are about to be published.
func (r *Relay) taken(rows []row) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range rows {
		name := rows[i].common.Group
		t := r.topics[name]
		if t == nil {
			t = new(topic)
			r.topics[name] = t
		}
		t.inFlight++
		t.probing = !t.closed.IsZero()
	}
}

func (r *Relay) ended(name string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.topics[name]
	t.inFlight -= n
	t.probing = false
}

// noted notes how a call of the publisher ended.
func (r *Relay) noted(name string, errs []error) {
	if len(errs) == 0 {
		return
	}
	unavailable := false
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.topics[name]
	for _, err := range errs {
		var refused *everonce.PermanentError
		if err == nil || errors.As(err, &refused) { // the destination answers
			t.failures, t.closed = 0, time.Time{}
			return
		}
		unavailable = unavailable || errors.Is(err, ErrUnavailable)
	}
	t.failures++
	if unavailable {
		t.failures = max(t.failures, breakAfter)
	}
	if t.failures < breakAfter {
		return
	}
	pause := retry.Within(minPause, maxPause, t.failures-breakAfter+1)
	if t.failures == breakAfter {
		r.set.Log.Warn("outbox: a topic is paused: nothing of it could be published", "topic", name, "error", errors.Join(errs[0]))
	}
	t.closed = time.Now().Add(pause)
}
