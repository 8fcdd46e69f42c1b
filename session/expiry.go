package session

import (
	"container/heap"
	"slices"
)

// Sessions expire in the order of (last accepted command, ID). A renewal only sets a new time in the session: the heap
// keeps an older time, and is corrected when that comes up. So a renewal costs nothing here, and a session is examined
// once per lease, and at its end.

type dueAt struct {
	last int64
	id   ID
}

// dueHeap is a [heap.Interface]: the first to expire is at 0.
type dueHeap []dueAt

func (h dueHeap) Len() int { return len(h) }
func (h dueHeap) Less(i, j int) bool {
	return h[i].last < h[j].last || h[i].last == h[j].last && h[i].id < h[j].id
}
func (h dueHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(d any)   { *h = append(*h, d.(dueAt)) } //nolint:forcetypeassert // of heap.Push below

func (h *dueHeap) Pop() any {
	last := len(*h) - 1
	d := (*h)[last]
	*h = (*h)[:last]
	return d
}

// queue adds a new session to the heap. It removes sessions that their clients have ended when these are too many.
func (m *Machine) queue(s *session) {
	if len(m.due) > 2*len(m.byID)+64 {
		m.due = slices.DeleteFunc(m.due, func(d dueAt) bool { return m.byID[d.id] == nil || d.id == s.id })
		heap.Init(&m.due)
	}
	heap.Push(&m.due, dueAt{s.last, s.id})
}

// quietest returns the session whose last command is the oldest, and puts it first in the heap. It returns nil if there
// are no sessions.
func (m *Machine) quietest() *session {
	for len(m.due) > 0 {
		first := &m.due[0]
		s := m.byID[first.id]
		switch {
		case s == nil:
			heap.Pop(&m.due)
		case s.last != first.last:
			first.last = s.last
			heap.Fix(&m.due, 0)
			if cap(s.entries) > 2*len(s.entries)+2 { // it was busy before: release memory
				m.own(s).entries = slices.Clip(slices.Clone(s.entries))
			}
		default:
			return s
		}
	}
	return nil
}

// expire ends the sessions whose lease has ended.
func (m *Machine) expire() {
	for len(m.due) > 0 && m.now-m.due[0].last >= int64(m.config.Lease) {
		s := m.quietest()
		if s == nil || m.now-s.last < int64(m.config.Lease) {
			return
		}
		heap.Pop(&m.due)
		m.remove(s)
	}
}
