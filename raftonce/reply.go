package raftonce

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/everonce/everonce/session"
)

// A node's reply to a client, numbers little endian:
//
//	version(8) kind(8), and by kind
//	an answer: refusal(8) replayed(8) elided(8) session epoch next lease window (64 each) beats (count in 16 bits; each 8) result
//	not the leader: its address
//	to be sent again: why, a text
//	too large: nothing
const replyVersion = 1

const (
	kindAnswer    = 1
	kindNotLeader = 2
	kindRetry     = 3
	kindTooLarge  = 4
)

// terms is the part of the Config that a client needs.
type terms struct {
	lease  time.Duration
	window uint64
}

// errReply: the bytes are not a reply of a node, but of something between client and node.
var errReply = errors.New("raftonce: not a reply of Node.Handle")

func notLeader(leader string) []byte { return append([]byte{replyVersion, kindNotLeader}, leader...) }

func tryAgain(why error) []byte { return append([]byte{replyVersion, kindRetry}, why.Error()...) }

func answered(a session.Reply, t terms) []byte {
	flag := map[bool]byte{true: 1}
	b := []byte{replyVersion, kindAnswer, byte(a.Err), flag[a.Replayed], flag[a.Elided]}
	for _, n := range []uint64{uint64(a.Session), a.Epoch, a.Next, uint64(t.lease), t.window} { //nolint:gosec // not negative
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	b = binary.LittleEndian.AppendUint16(b, uint16(len(a.Beats))) //nolint:gosec // at most session.MaxBeats
	for _, r := range a.Beats {
		b = append(b, byte(r))
	}
	return append(b, a.Result...)
}

// parseReply returns a reply, or the node's error: [ErrRetry], [ErrNotLeader] or [ErrTooLarge].
func parseReply(b []byte) (a session.Reply, t terms, err error) {
	const head = 5 + 5*8 + 2
	switch {
	case len(b) < 2 || b[0] != replyVersion:
		return a, t, errReply
	case b[1] == kindNotLeader:
		return a, t, &NotLeaderError{Leader: string(b[2:])}
	case b[1] == kindRetry:
		return a, t, fmt.Errorf("%w: the node said: %s", ErrRetry, b[2:])
	case b[1] == kindTooLarge:
		return a, t, ErrTooLarge
	case b[1] != kindAnswer || len(b) < head:
		return a, t, errReply
	}
	number := func(i int) uint64 { return binary.LittleEndian.Uint64(b[5+8*i:]) }
	a = session.Reply{
		Err: session.Refusal(b[2]), Replayed: b[3] != 0, Elided: b[4] != 0,
		Session: session.ID(number(0)), Epoch: number(1), Next: number(2),
	}
	t = terms{lease: time.Duration(number(3)), window: number(4)} //nolint:gosec // it was not negative
	beats := int(binary.LittleEndian.Uint16(b[head-2:]))
	if b = b[head:]; len(b) < beats {
		return a, t, errReply
	}
	for _, r := range b[:beats] {
		a.Beats = append(a.Beats, session.Refusal(r))
	}
	a.Result = b[beats:]
	return a, t, nil
}
