package everonce_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/everonce/everonce"
)

// judge checks a run that is over.
func (m *crowdModel) judge() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for r := range m.guarded {
		for _, w := range []interface{ Waiting() (int, int) }{m.guarded[r], m.txs[r]} {
			if callers, keys := w.Waiting(); callers != 0 || keys != 0 {
				m.fail("%d callers and %d keys are left in a hub", callers, keys)
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

// judgeWaits finds who waited for longer than the longest pause though no attempt ran.
func (m *crowdModel) judgeWaits(k int) {
	allowed := 1501 * time.Millisecond // an end in the own receiver, and word, wake sooner: see TestWokenBy…, TestWord…
	switch m.plan.Word {
	case slowStop:
		allowed += 2 * 300 * time.Millisecond
	case hungWords: // whose turn it is asks for word first
		allowed += time.Second
	}
	for _, w := range m.waits[k] {
		free := w.from
		for _, b := range append(m.busy[k], span{w.to, w.to, 0}) {
			if b.from.After(w.to) {
				b.from = w.to
			}
			if gap := b.from.Sub(free); gap > allowed {
				m.fail("a caller of receiver %d waited for key %d from %v to %v, and nothing ran for %v from %v on",
					w.receiver, k, w.from.Sub(m.start), w.to.Sub(m.start), gap, free.Sub(m.start))
			}
			if b.to.After(free) {
				free = b.to
			}
		}
	}
}

// judgeAsks finds a receiver that asks more often than the pauses that begin short allow, where nothing has happened for a while.
func (m *crowdModel) judgeAsks(k, r int) {
	const second, quiet, most = time.Second, 3 * time.Second, 10
	events := m.events[k]
	for _, c := range m.plan.Calls {
		if c.Key == k {
			events = append(events, m.start.Add(c.At+c.Wait))
			if m.plan.Transactions && m.plan.Optimistic { // which waits only after its work, if it meets another then
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
