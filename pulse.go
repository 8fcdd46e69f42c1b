package everonce

import (
	"container/heap"
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

// beats is a heap of attempts by the time of their next beat.
type beats []*Attempt

func (b beats) Len() int           { return len(b) }
func (b beats) Less(i, j int) bool { return b[i].beat.next.Before(b[j].beat.next) }
func (b beats) Swap(i, j int) {
	b[i], b[j] = b[j], b[i]
	b[i].beat.index, b[j].beat.index = i, j
}

func (b *beats) Push(x any) {
	a := x.(*Attempt) //nolint:forcetypeassert // the heap holds nothing else
	a.beat.index = len(*b)
	*b = append(*b, a)
}

func (b *beats) Pop() any {
	last := len(*b) - 1
	a := (*b)[last]
	(*b)[last] = nil
	*b = (*b)[:last]
	a.beat.index = notDue
	return a
}

// notDue is the index of an attempt that is not in the heap.
const notDue = -1

// schedule makes the attempt beat at a time. The attempt's heartbeat is locked, or not yet shared.
func (p *pulse) schedule(a *Attempt, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a.beat.next = at
	heap.Push(&p.due, a)
	if p.armed.IsZero() || at.Before(p.armed) {
		p.arm(at)
	}
}

// cancel takes the attempt's next beat back. The timer may then fire for nobody, and arms itself anew.
func (p *pulse) cancel(a *Attempt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a.beat.index != notDue {
		heap.Remove(&p.due, a.beat.index)
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
	for len(p.due) > 0 && !p.due[0].beat.next.After(now) {
		a := heap.Pop(&p.due).(*Attempt) //nolint:forcetypeassert // the heap holds nothing else
		go a.renew()
	}
	p.armed = time.Time{}
	if len(p.due) > 0 {
		p.arm(p.due[0].beat.next)
	}
}
