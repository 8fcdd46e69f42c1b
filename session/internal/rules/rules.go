// Package rules decides on the commands of one session, for every host: in memory, or in rows.
package rules

import "crypto/subtle"

// Refusal is the number of a session.Refusal; 0 if the command is accepted.
type Refusal uint8

// The refusals of this package.
const (
	Invalid    Refusal = 1
	Expired    Refusal = 2
	Unknown    Refusal = 3
	Fenced     Refusal = 4
	BadMark    Refusal = 5
	Stale      Refusal = 6
	Mismatch   Refusal = 7
	InProgress Refusal = 8
	WindowFull Refusal = 9
	Gap        Refusal = 10
)

// Session is the part of a session that decisions need.
type Session struct {
	Nonce   [16]byte
	Epoch   uint64
	Mark    uint64 // the client has every reply up to it
	High    uint64 // the highest number that was executed
	Ordered bool
}

// Absent returns the refusal of a command whose session does not exist, where last is the highest ID that was given.
func Absent(id, last uint64) Refusal {
	if id != 0 && id <= last {
		return Expired
	}
	return Unknown
}

// Admit decides whether a command comes from the session's own client, in its latest run.
func (s *Session) Admit(nonce [16]byte, epoch uint64) Refusal {
	switch {
	case subtle.ConstantTimeCompare(s.Nonce[:], nonce[:]) == 0:
		return Unknown
	case epoch < s.Epoch:
		return Fenced
	}
	return 0
}

// Request is a request, and the stored data of its number.
type Request struct {
	Number, Mark uint64
	Seen         bool // the number was used
	Same         bool // the earlier request has the same fingerprint
	Running      bool // the earlier request is being executed
	Bytes        int  // size of the results kept above Mark
}

// Decide decides on a request that was admitted: without a refusal, a request that was Seen is replayed, and any other
// one is executed. next is set with Gap.
func (s *Session) Decide(r *Request, window uint64, maxBytes int) (refusal Refusal, next uint64) {
	switch {
	case r.Number == 0:
		return Invalid, 0
	case r.Mark >= r.Number:
		return BadMark, 0
	case r.Number <= s.Mark:
		return Stale, 0
	case r.Seen && !r.Same:
		return Mismatch, 0
	case r.Seen && r.Running:
		return InProgress, 0
	case r.Seen:
		return 0, 0
	}
	mark := max(s.Mark, r.Mark) // the mark if the request is accepted
	// The number after the mark is always accepted: otherwise the mark could not pass it.
	if r.Number-mark > window || r.Bytes >= maxBytes && r.Number-mark > 1 {
		return WindowFull, 0
	}
	if next := max(s.High, mark) + 1; s.Ordered && r.Number != next {
		return Gap, next
	}
	return 0, 0
}

// Beat decides on the mark of a keep-alive that was admitted.
func (s *Session) Beat(mark, window uint64) Refusal {
	if mark > s.High && mark-s.High > window {
		return BadMark
	}
	return 0
}

// Accept updates a session for an accepted command, except for the time. It reports whether the mark has moved.
func (s *Session) Accept(epoch, mark uint64) (moved bool) {
	moved = mark > s.Mark
	s.Epoch, s.Mark = epoch, max(s.Mark, mark)
	return moved
}
