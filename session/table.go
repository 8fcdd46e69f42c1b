package session

import (
	"cmp"
	"slices"

	"github.com/everonce/everonce/session/internal/rules"
)

// session is the session of one client. Only the machine changes it, and only through [Machine.own].
type session struct {
	rules.Session
	id      ID
	last    int64   // when its last command was accepted
	entries []entry // above the mark, by number
	of      *holder
	bytes   int    // size of the results in entries
	place   int32  // index in views.listed
	view    uint32 // the newest view that may show it
}

// holder is a principal with its sessions.
type holder struct {
	name     string
	sessions int
}

// entry is a request above the mark.
type entry struct {
	number uint64
	sum    Fingerprint
	result []byte
	state  state
}

// state is the state of a request. Its numbers are part of snapshots.
type state uint8

const (
	executing state = 0 // never in a snapshot
	kept      state = 1
	elided    state = 2
)

// search returns the index of the number in entries, or where it would be.
func (s *session) search(number uint64) (at int, found bool) {
	n := len(s.entries)
	switch { // the usual cases
	case n == 0 || s.entries[n-1].number < number:
		return n, false
	case s.entries[n-1].number == number:
		return n - 1, true
	}
	return slices.BinarySearchFunc(s.entries, number, func(e entry, number uint64) int { return cmp.Compare(e.number, number) })
}

func (s *session) find(number uint64) *entry {
	if at, found := s.search(number); found {
		return &s.entries[at]
	}
	return nil
}

// begin records that a request is being executed.
func (s *session) begin(number uint64, sum Fingerprint) {
	at, _ := s.search(number)
	s.entries = slices.Insert(s.entries, at, entry{number: number, sum: sum})
	s.High = max(s.High, number)
}

// forget drops the entries up to the mark.
func (s *session) forget() {
	n := 0
	for n < len(s.entries) && s.entries[n].number <= s.Mark {
		s.bytes -= len(s.entries[n].result)
		n++
	}
	s.entries = slices.Delete(s.entries, 0, n)
}

// bytesAbove returns what bytes would be with another mark.
func (s *session) bytesAbove(mark uint64) int {
	left := s.bytes
	for i := range s.entries {
		if s.entries[i].number > mark {
			break
		}
		left -= len(s.entries[i].result)
	}
	return left
}
