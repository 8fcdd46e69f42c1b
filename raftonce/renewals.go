package raftonce

import (
	"sync"
	"time"

	"github.com/everonce/everonce/session"
)

// renewals collects the renewals of clients, so that many of them are one entry of the log.
type renewals struct {
	mu   sync.Mutex
	open *round // the round that still takes renewals, or nil
}

type round struct {
	command session.Command
	done    chan struct{} // closed when the reply is known
	answer  session.Reply
	err     error
}

// gather returns how long a renewal waits for others.
func gather(lease time.Duration) time.Duration { return min(lease/100, 20*time.Millisecond) }

// renew applies renewals together with those from other callers.
func (n *Node) renew(mine []session.Beat, timeout time.Duration) (session.Reply, error) {
	n.renewals.mu.Lock()
	r := n.renewals.open
	first := r == nil || len(r.command.Beats)+len(mine) > session.MaxBeats
	if first {
		r = &round{command: session.Command{Op: session.KeepAlive}, done: make(chan struct{})}
		n.renewals.open = r
	}
	at := len(r.command.Beats)
	r.command.Beats = append(r.command.Beats, mine...)
	n.renewals.mu.Unlock()

	if first {
		time.Sleep(gather(n.fsm.Lease()))
		n.renewals.mu.Lock()
		if n.renewals.open == r {
			n.renewals.open = nil
		}
		n.renewals.mu.Unlock()
		r.answer, r.err = n.Apply(&r.command, timeout)
		close(r.done)
	}
	<-r.done
	answer := r.answer
	if answer.Beats != nil {
		answer.Beats = answer.Beats[at : at+len(mine)]
	}
	return answer, r.err
}
