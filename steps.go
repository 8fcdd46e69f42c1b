package everonce

import (
	"fmt"
	"slices"
	"sync"

	"github.com/everonce/everonce/driver"
)

// knownSteps returns the attempt's step state, creating it if needed.
func (a *Attempt) knownSteps() *steps {
	if s := a.steps.Load(); s != nil {
		return s
	}
	a.steps.CompareAndSwap(nil, new(steps))
	return a.steps.Load()
}

// noSteps stands for the steps of an attempt that had none and has ended.
var noSteps = &steps{closed: true}

// seenSteps returns the attempt's step state, or nil if it has none. It never returns noSteps: all attempts would
// share its lock.
func (a *Attempt) seenSteps() *steps {
	if s := a.steps.Load(); s != noSteps {
		return s
	}
	return nil
}

func (a *Attempt) closeSteps() {
	if !a.steps.CompareAndSwap(nil, noSteps) {
		a.seenSteps().close()
	}
}

// steps is the step state of an attempt. A nil one is empty.
type steps struct {
	mu       sync.Mutex
	closed   bool
	recorded []driver.StepRecord // by earlier attempts; read only
	used     map[string]struct{}
	written  []driver.StepRecord // by this attempt, the latest of each
	opened   []openStep
	unknown  string // the step that was refused
	again    bool   // whether the next attempt asks about it
}

type openStep struct {
	name    string
	policy  Policy
	earlier bool // left open by an earlier attempt, and not begun in this one
}

// recall takes over the steps that earlier attempts recorded. A step that they left open remains open until this
// attempt runs and ends it; its policy applies then.
func recall(recorded []driver.StepRecord) *steps {
	s := &steps{recorded: recorded}
	for _, r := range recorded {
		if r.State == driver.StepOpen || !r.Readable() {
			s.opened = append(s.opened, openStep{name: r.Name, earlier: true})
		}
	}
	return s
}

var errStepRepeated = fmt.Errorf("%w: a step name was used twice in one attempt", ErrInvalidArgument)

func (s *steps) use(name string) (driver.StepRecord, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return driver.StepRecord{}, ErrAttemptEnded
	}
	if _, twice := s.used[name]; twice {
		return driver.StepRecord{}, errStepRepeated
	}
	if s.used == nil {
		s.used = make(map[string]struct{})
	}
	s.used[name] = struct{}{}
	for _, r := range s.recorded {
		if r.Name == name {
			return r, nil
		}
	}
	return driver.StepRecord{}, nil
}

func (s *steps) open(name string, p Policy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.opened {
		if s.opened[i].name == name {
			s.opened[i] = openStep{name, p, false}
			return
		}
	}
	s.opened = append(s.opened, openStep{name, p, false})
}

func (s *steps) ended(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, o := range s.opened {
		if o.name == name {
			s.opened = append(s.opened[:i], s.opened[i+1:]...)
			return
		}
	}
}

func (s *steps) refuse(name string, again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unknown == "" || s.again && !again {
		s.unknown, s.again = name, again
	}
}

// asksAgain reports whether the next attempt asks about the refused step.
func (s *steps) asksAgain(step string) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return step == s.unknown && s.again
}

func (s *steps) refusedStep() string {
	if s == nil {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unknown
}

func (s *steps) anyOpen() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.opened) > 0
}

// firstOpen returns a step that this attempt left open and that the next one will refuse. Other open steps run
// again, or are asked about.
func (s *steps) firstOpen() string {
	if s == nil {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.opened {
		if o.policy == Refuse && !o.earlier {
			return o.name
		}
	}
	return ""
}

func (s *steps) wrote(rec driver.StepRecord) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.written {
		if s.written[i].Name == rec.Name {
			s.written[i] = rec
			return
		}
	}
	s.written = append(s.written, rec)
}

func (s *steps) known() []driver.StepRecord {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known := append([]driver.StepRecord(nil), s.recorded...)
	for _, w := range s.written {
		i := slices.IndexFunc(known, func(r driver.StepRecord) bool { return r.Name == w.Name })
		if i < 0 {
			known = append(known, w)
			continue
		}
		w.BeganAt = known[i].BeganAt
		known[i] = w
	}
	return known
}

func (s *steps) unused() []string {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, r := range s.recorded {
		if _, ok := s.used[r.Name]; !ok {
			names = append(names, r.Name)
		}
	}
	return names
}

func (s *steps) close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}
