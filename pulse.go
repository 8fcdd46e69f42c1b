package everonce

import (
	"sync"
	"time"
)

// pulse is the one timer that beats for all attempts of a receiver: work that ends before its first
// beat costs an entry in a list, and neither a timer nor a goroutine of its own.
type pulse struct {
	mu    sync.Mutex
	due   beats
	timer *time.Timer
	armed time.Time // when the timer fires; zero while it is not running
}

// schedule makes the attempt beat at a time. The attempt's heartbeat is locked, or not yet shared.
func (p *pulse) schedule(a *Attempt, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a.beat.due = at.Sub(processStart)
	p.due.add(a)
	if p.armed.IsZero() || at.Before(p.armed) {
		p.arm(at)
	}
}

// cancel takes the attempt's next beat back. The timer may then fire for nobody, and arms itself anew.
func (p *pulse) cancel(a *Attempt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a.beat.index != notDue {
		p.due.remove(a)
	}
}

func (p *pulse) arm(at time.Time) {
	p.armed = at
	if p.timer == nil {
		p.timer = time.AfterFunc(time.Until(at), p.fire)
		return
	}
	p.timer.Reset(time.Until(at))
}

// fire lets every attempt that is due beat, each in a goroutine of its own: one slow renewal delays no other.
func (p *pulse) fire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Since(processStart)
	for len(p.due) > 0 && p.due[0].beat.due <= now {
		a := p.due[0]
		p.due.remove(a)
		go a.renew()
	}
	p.armed = time.Time{}
	if len(p.due) > 0 {
		p.arm(processStart.Add(p.due[0].beat.due))
	}
}
