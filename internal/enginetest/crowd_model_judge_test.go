package enginetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/internal/probe"
)

// judge checks a run that is over.
func (m *crowdModel) judge() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for r := range m.guarded {
		for _, w := range []everonce.AnyReceiver{m.guarded[r], m.txs[r]} {
			if held := probe.Receiver(w); held.Callers != 0 || held.Keys != 0 {
				m.fail("%+v are left in a hub", held)
			}
		}
	}
	if m.word != nil && m.word.open != 0 {
		m.fail("%d watches are left", m.word.open)
	}
	for k := range crowdKeys {
		m.judgeEffects(k)
		slices.SortFunc(m.busy[k], func(a, b span) int { return a.from.Compare(b.from) })
		if len(m.plan.Troubles) == 0 {
			m.judgeWaits(k)
			for r := range m.guarded {
				m.judgeAsks(k, r)
			}
		}
	}
}

// judgeEffects holds the number of effects against the policy.
func (m *crowdModel) judgeEffects(k int) {
	n := len(m.effects[k])
	switch {
	case m.plan.Transactions:
		n = m.store.row(fmt.Sprint("effects of ", k))
	case m.plan.Policy == everonce.Reexecute:
		return // as often as it ended in the unknown; none after it was done, see effect
	}
	if n > 1+m.more[k] {
		m.fail("key %d took effect %d times: %v", k, n, m.effects[k])
	}
}

// judgeWaits finds who waited though no attempt ran, for longer than it may take to hear of the end of the one before.
func (m *crowdModel) judgeWaits(k int) {
	for _, w := range m.waits[k] {
		free, ender := w.from, noReceiver
		for _, b := range append(m.busy[k], span{w.to, w.to, noReceiver}) {
			if b.from.After(w.to) {
				b.from = w.to
			}
			if gap := b.from.Sub(free); gap > m.allowed(k, w.receiver, ender, free) {
				m.fail("a caller of receiver %d waited for key %d from %v to %v, and nothing ran for %v from %v on, when one of receiver %d had ended",
					w.receiver, k, w.from.Sub(m.start), w.to.Sub(m.start), gap, free.Sub(m.start), ender)
			}
			switch {
			case b.to.After(free):
				free, ender = b.to, b.receiver
			case b.to.Equal(free) && b.receiver != ender: // a caller that asked at the end of the one may have found the other
				ender = noReceiver
			}
		}
	}
}

// allowed is how long callers of a receiver may wait for a key behind an end: no time at all if the end was in
// their own receiver, or if the store has sent a notification of it; else the longest pause. The longest pause also
// applies if another receiver was granted the record at that moment, even without work, as when it only asked
// whether an unknown attempt had happened: the woken caller has found that one running.
func (m *crowdModel) allowed(k, receiver, ender int, free time.Time) time.Duration {
	longest, hung := 1501*time.Millisecond, time.Duration(0)
	if m.plan.Word == hungWords { // whose turn it is may be asking for word
		hung = time.Second
	}
	for _, g := range m.grants[k] {
		if g.receiver != receiver && !g.from.Before(free) && !g.from.After(free.Add(hung)) {
			return longest + hung
		}
	}
	switch {
	case ender == noReceiver:
	case ender == receiver:
		return hung
	case m.plan.Transactions: // of whose ends there is no word
	case (m.plan.Word == goodWord || m.plan.Word == slowStop) && !m.stirred(k, free):
		return 0
	}
	return longest + hung
}

// stirred reports whether anything has happened to a key shortly before a time: word that comes again soon is
// followed after a pause.
func (m *crowdModel) stirred(k int, at time.Time) bool {
	since := at.Add(-3 * time.Second)
	return slices.ContainsFunc(m.events[k], func(e time.Time) bool { return e.After(since) && e.Before(at) }) ||
		slices.ContainsFunc(m.grants[k], func(g span) bool { return g.from.After(since) && !g.from.After(at) })
}

// judgeAsks finds a receiver that asks more often than the pauses that begin short allow, where nothing has
// happened for a while.
func (m *crowdModel) judgeAsks(k, r int) {
	const second, quiet, most = time.Second, 3 * time.Second, 10
	events := m.events[k]
	for _, c := range m.plan.Calls {
		if c.Key == k {
			events = append(events, m.start.Add(c.At+c.Wait))
			if m.plan.Transactions && m.plan.Optimistic { // which waits only after its work, if it finds another then
				events = append(events, m.start.Add(c.At+c.Takes))
			}
		}
	}
	asks := m.asks[[2]int{k, r}]
	for i, at := range asks {
		if slices.ContainsFunc(events, func(e time.Time) bool { return e.After(at.Add(-quiet)) && e.Before(at.Add(quiet)) }) {
			continue
		}
		n := 0
		for _, other := range asks[i:] {
			if other.Sub(at) < second {
				n++
			}
		}
		if n > most {
			m.fail("receiver %d asked for key %d %d times in a second from %v on", r, k, n, at.Sub(m.start))
		}
	}
}
