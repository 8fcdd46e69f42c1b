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
	p.due.add(beat{at, a})
	if p.armed.IsZero() || at.Before(p.armed) {
		p.arm(at)
	}
}

// cancel takes the attempt's next beat back. The timer may then fire for nobody, and arms itself anew.
func (p *pulse) cancel(a *Attempt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a.beat.index != notDue {
		p.due.remove(int(a.beat.index))
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
	now := time.Now()
	for len(p.due) > 0 && !p.due[0].at.After(now) {
		a := p.due[0].attempt
		p.due.remove(0)
		go a.renew()
	}
	p.armed = time.Time{}
	if len(p.due) > 0 {
		p.arm(p.due[0].at)
	}
}
