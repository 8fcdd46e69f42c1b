package session

import "slices"

// views lets snapshots be written while the machine goes on. A snapshot has the list of the sessions at its time. A
// session that a snapshot may still read is copied before it is changed.
type views struct {
	listed []*session // by ID, which is the order of registration; nil if the session has ended
	gone   int        // nil entries in listed
	view   uint32     // counts snapshots
	reads  int        // snapshots that are not released yet
}

// own returns a session that may be changed.
func (m *Machine) own(s *session) *session {
	if m.reads == 0 || s.view == m.view {
		return s
	}
	clone := *s
	clone.entries, clone.view = slices.Clone(s.entries), m.view
	m.byID[s.id], m.listed[s.place] = &clone, &clone
	return &clone
}

func (m *Machine) list(s *session) {
	if m.gone > len(m.listed)/2 {
		m.listed = slices.DeleteFunc(m.listed, func(s *session) bool { return s == nil })
		m.gone = 0
		for i, s := range m.listed {
			s.place = int32(i)
		}
	}
	s.place, s.view = int32(len(m.listed)), m.view //nolint:gosec // there are at most largest
	m.listed = append(m.listed, s)
}

func (m *Machine) unlist(s *session) {
	m.listed[s.place] = nil
	m.gone++
}
