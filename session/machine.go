package session

import (
	"container/heap"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/everonce/everonce/session/internal/rules"
)

// Config is the configuration of a [Machine], and a part of its state. All replicas must begin with the same.
type Config struct {
	// Name identifies the machine: Restore refuses a snapshot with another name. At most MaxPrincipal bytes.
	Name string
	// Lease is how long a session lives after its last accepted command, in the time of the stamps. Required.
	Lease time.Duration
	// Window is how far above the mark a session's numbers may reach. Default 128.
	Window uint64
	// MaxResult is the size in bytes above which a result is elided. Default 64 KiB.
	MaxResult int
	// MaxBytes bounds the results kept for one session. Above it, a request gets ErrWindowFull, except for the number
	// after the mark. Default 1 MiB.
	MaxBytes int
	// MaxSessions bounds the number of sessions, and PerPrincipal the number of one principal's sessions. Defaults 1 000
	// 000, and no bound.
	MaxSessions, PerPrincipal int
	// Evict makes a registration at MaxSessions end the session that was quiet for the longest time. By default the
	// registration is refused, because the client of a session that was ended cannot know the outcome of its requests.
	Evict bool
}

// ErrConfig is wrapped by the error of [New] for a Config that is not valid.
var ErrConfig = errors.New("session: invalid Config")

// largest bounds the values of a Config, so that they fit the snapshot.
const largest = 1<<31 - 1

func (c Config) withDefaults() (Config, error) {
	for _, d := range []struct {
		value  *int
		normal int
	}{{&c.MaxResult, 64 << 10}, {&c.MaxBytes, 1 << 20}, {&c.MaxSessions, 1_000_000}} {
		if *d.value == 0 {
			*d.value = d.normal
		}
	}
	if c.Window == 0 {
		c.Window = 128
	}
	switch {
	case c.Lease <= 0:
		return c, fmt.Errorf("%w: Lease is required", ErrConfig)
	case len(c.Name) > MaxPrincipal:
		return c, fmt.Errorf("%w: Name has more than %d bytes", ErrConfig, MaxPrincipal)
	case c.Window > 1<<16:
		return c, fmt.Errorf("%w: Window is larger than %d", ErrConfig, 1<<16)
	}
	for _, n := range []int{c.MaxResult, c.MaxBytes, c.MaxSessions, c.PerPrincipal} {
		if n < 0 || n > largest {
			return c, fmt.Errorf("%w: a limit is negative or larger than %d", ErrConfig, largest)
		}
	}
	return c, nil
}

// Machine is a table of client sessions. It is not safe for concurrent use, except that a [Snapshot] may be written
// while commands are applied.
type Machine struct {
	config  Config
	now     int64 // the highest stamp
	lastID  ID
	byID    map[ID]*session
	byNonce map[Nonce]ID
	held    map[string]*holder
	due     dueHeap
	open    int // requests that are being executed
	views
}

// New returns a machine without sessions. The error wraps [ErrConfig].
func New(config Config) (*Machine, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Machine{config: config, byID: map[ID]*session{}, byNonce: map[Nonce]ID{}, held: map[string]*holder{}}, nil
}

// Config returns the machine's Config, with its defaults. After [Restore] it is the snapshot's Config.
func (m *Machine) Config() Config { return m.config }

// Len returns the number of sessions.
func (m *Machine) Len() int { return len(m.byID) }

// Now returns the machine's time: the highest stamp so far, in nanoseconds.
func (m *Machine) Now() int64 { return m.now }

// Apply applies one command at the time stamp, in nanoseconds of any epoch. A lower stamp than the highest so far is
// replaced by that one: time does not go back. If the request must be executed, Apply calls execute and records its
// result.
//
// The changes of execute and of Apply must become durable together, or not at all.
func (m *Machine) Apply(stamp int64, c *Command, execute func() []byte) Reply {
	answer := m.Begin(stamp, c)
	if !answer.Execute {
		return answer
	}
	return m.Record(c, execute())
}

// Begin is the first half of [Machine.Apply]: if the reply says Execute, the host executes the request and calls
// [Machine.Record], or [Machine.Abandon] if the request had no effect. In between the same request is refused with
// [ErrInProgress], an ordered session accepts no other one, and Snapshot fails.
func (m *Machine) Begin(stamp int64, c *Command) Reply {
	m.now = max(m.now, stamp)
	m.expire()
	switch c.Op {
	case Request:
		return m.request(c)
	case Register:
		return m.register(c)
	case KeepAlive:
		return m.keepAlive(c)
	case End:
		s, refusal := m.session(c.Session, c.Nonce, c.Epoch)
		if refusal == 0 {
			m.remove(s)
		}
		return Reply{Err: refusal}
	case Tick:
		return Reply{}
	}
	return Reply{Err: ErrInvalid}
}

// Record keeps the result of a request that Begin returned for execution, and returns its reply. The machine keeps
// result itself: it must not be changed any more. If the session has ended since, nothing is kept.
func (m *Machine) Record(c *Command, result []byte) Reply {
	m.open--
	answer := Reply{Result: result}
	s := m.byID[c.Session]
	if s == nil {
		return answer
	}
	s = m.own(s)
	e := s.find(c.Number)
	if e == nil || e.state != executing {
		return answer
	}
	e.state, e.result = kept, result
	if len(result) > m.config.MaxResult {
		e.state, e.result = elided, nil
	}
	s.bytes += len(e.result)
	return answer
}

// Abandon releases a request that Begin returned for execution, and that had no effect: its number may be used again,
// also for another request. The command remains accepted: it has renewed its session, and moved its mark.
func (m *Machine) Abandon(c *Command) {
	m.open--
	s := m.byID[c.Session]
	if s == nil {
		return
	}
	s = m.own(s)
	at, found := s.search(c.Number)
	if !found || s.entries[at].state != executing {
		return
	}
	s.entries = slices.Delete(s.entries, at, at+1)
	if s.High == c.Number {
		s.High = s.Mark
		if n := len(s.entries); n > 0 {
			s.High = s.entries[n-1].number
		}
	}
}

// session returns the session of a command.
func (m *Machine) session(id ID, nonce Nonce, epoch uint64) (*session, Refusal) {
	s := m.byID[id]
	if s == nil {
		return nil, Refusal(rules.Absent(uint64(id), uint64(m.lastID)))
	}
	return s, Refusal(s.Admit(nonce, epoch))
}

func (m *Machine) request(c *Command) Reply {
	s, refusal := m.session(c.Session, c.Nonce, c.Epoch)
	if refusal != 0 {
		return Reply{Err: refusal}
	}
	r := rules.Request{Number: c.Number, Mark: c.Mark, Bytes: s.bytesAbove(c.Mark)}
	e := s.find(c.Number)
	if e != nil {
		r.Seen, r.Same, r.Running = true, e.sum == c.Fingerprint, e.state == executing
	}
	switch refused, next := s.Decide(&r, m.config.Window, m.config.MaxBytes); {
	case refused != 0:
		return Reply{Err: Refusal(refused), Next: next}
	case e != nil:
		answer := Reply{Replayed: true, Elided: e.state == elided, Result: e.result}
		m.accept(s, c.Epoch, c.Mark)
		return answer
	}
	if n := len(s.entries); s.Ordered && n > 0 { // one after the other: the last one may still be abandoned
		if last := &s.entries[n-1]; last.state == executing && last.number > c.Mark {
			return Reply{Err: ErrGap, Next: last.number}
		}
	}
	m.accept(s, c.Epoch, c.Mark).begin(c.Number, c.Fingerprint)
	m.open++
	return Reply{Execute: true}
}

func (m *Machine) register(c *Command) Reply {
	if len(c.Principal) > MaxPrincipal {
		return Reply{Err: ErrInvalid}
	}
	if id, ok := m.byNonce[c.Nonce]; ok { // a repeated registration
		s, refusal := m.session(id, c.Nonce, c.Epoch)
		if refusal == 0 && (s.of.name != c.Principal || s.Ordered != c.Ordered) {
			refusal = ErrMismatch
		}
		if refusal != 0 {
			return Reply{Err: refusal}
		}
		s = m.accept(s, c.Epoch, 0)
		return Reply{Session: id, Epoch: s.Epoch, High: s.High}
	}
	of := m.holder(c.Principal)
	if quota := m.config.PerPrincipal; quota > 0 && of.sessions >= quota {
		return Reply{Err: ErrQuota}
	}
	if len(m.byID) >= m.config.MaxSessions {
		if !m.config.Evict {
			return Reply{Err: ErrFull}
		}
		m.remove(m.quietest())
		heap.Pop(&m.due)
	}
	m.lastID++
	m.add(&session{Session: rules.Session{Nonce: c.Nonce, Epoch: c.Epoch, Ordered: c.Ordered}, id: m.lastID, of: of, last: m.now})
	return Reply{Session: m.lastID, Epoch: c.Epoch}
}

func (m *Machine) keepAlive(c *Command) Reply {
	if len(c.Beats) > MaxBeats {
		return Reply{Err: ErrInvalid}
	}
	var refused []Refusal
	for i, b := range c.Beats {
		s, refusal := m.session(b.Session, b.Nonce, b.Epoch)
		if refusal == 0 {
			refusal = Refusal(s.Beat(b.Mark, m.config.Window))
		}
		if refusal == 0 {
			m.accept(s, b.Epoch, b.Mark)
			continue
		}
		if refused == nil {
			refused = make([]Refusal, len(c.Beats))
		}
		refused[i] = refusal
	}
	return Reply{Beats: refused}
}

// accept updates the session for an accepted command: it renews it, and drops the results up to the mark.
func (m *Machine) accept(s *session, epoch, mark uint64) *session {
	s = m.own(s)
	s.last = m.now
	if s.Accept(epoch, mark) {
		s.forget()
	}
	return s
}

// holder returns the principal with this name.
func (m *Machine) holder(name string) *holder {
	if of := m.held[name]; of != nil {
		return of
	}
	return &holder{name: name}
}

func (m *Machine) add(s *session) {
	m.byID[s.id], m.byNonce[s.Nonce] = s, s.id
	m.held[s.of.name] = s.of
	s.of.sessions++
	m.queue(s)
	m.list(s)
}

func (m *Machine) remove(s *session) {
	delete(m.byID, s.id)
	delete(m.byNonce, s.Nonce)
	if s.of.sessions--; s.of.sessions == 0 {
		delete(m.held, s.of.name)
	}
	m.unlist(s)
}
