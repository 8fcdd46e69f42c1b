package session

import (
	"cmp"
	"slices"
)

// Sessions expire in the order of (last accepted command, ID). A renewal is only a new time in the session: the heap keeps
// the time that it was told, which may be older, and is corrected when that comes up. So a renewal costs nothing here, and
// a session is looked at once in a lease, and at its end.

type dueAt struct {
	last int64
	id   ID
}

func (a dueAt) before(b dueAt) bool { return a.last < b.last || a.last == b.last && a.id < b.id }

// dueHeap is a binary heap, the first to expire at 0.
type dueHeap []dueAt

func (h *dueHeap) push(d dueAt) {
	*h = append(*h, d)
	a := *h
	for i := len(a) - 1; i > 0; {
		parent := (i - 1) / 2
		if !a[i].before(a[parent]) {
			return
		}
		a[i], a[parent] = a[parent], a[i]
		i = parent
	}
}

// sink moves the first one to where it belongs.
func (h dueHeap) sink() {
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(h); child++ {
			if h[child].before(h[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}

func (h *dueHeap) pop() {
	a := *h
	last := len(a) - 1
	a[0] = a[last]
	*h = a[:last]
	h.sink()
}

// queue puts a new session into the heap. Those that were ended by their clients are taken out when they are too many.
func (m *Machine) queue(s *session) {
	if len(m.due) > 2*len(m.byID)+64 {
		m.due = slices.DeleteFunc(m.due, func(d dueAt) bool { return m.byID[d.id] == nil || d.id == s.id })
		slices.SortFunc(m.due, func(a, b dueAt) int { return cmp.Or(cmp.Compare(a.last, b.last), cmp.Compare(a.id, b.id)) }) // which is a heap
	}
	m.due.push(dueAt{s.last, s.id})
}

// quietest returns the session whose last command is the oldest, or nil if there is none. It is the first of due then.
func (m *Machine) quietest() *session {
	for len(m.due) > 0 {
		first := &m.due[0]
		s := m.byID[first.id]
		switch {
		case s == nil:
			m.due.pop()
		case s.last != first.last:
			first.last = s.last
			m.due.sink()
			if cap(s.entries) > 2*len(s.entries)+2 { // it was busy once, and is now and then looked at here
				m.own(s).entries = slices.Clip(slices.Clone(s.entries))
			}
		default:
			return s
		}
	}
	return nil
}

// expire ends the sessions whose lease is over.
func (m *Machine) expire() {
	for len(m.due) > 0 && m.now-m.due[0].last >= int64(m.config.Lease) {
		s := m.quietest()
		if s == nil || m.now-s.last < int64(m.config.Lease) {
			return
		}
		m.due.pop()
		m.remove(s)
	}
}
