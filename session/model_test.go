package session_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/everonce/everonce/session"
)

// model decides by the rules with a memory without end: it never forgets a session, a number or a result.
type model struct {
	config   session.Config
	now      int64
	sessions []*modelSession // by ID
}

type modelSession struct {
	nonce             session.Nonce
	epoch, mark, high uint64
	last              int64
	principal         string
	ordered, gone     bool
	done              map[uint64]modelEntry
}

type modelEntry struct {
	sum    session.Fingerprint
	result string
}

func (m *model) kept(e modelEntry) string {
	if len(e.result) > m.config.MaxResult {
		return ""
	}
	return e.result
}

func (m *model) find(id session.ID, nonce session.Nonce, epoch uint64) (*modelSession, session.Refusal) {
	switch {
	case id == 0 || int(id) > len(m.sessions):
		return nil, session.ErrSessionUnknown
	case m.sessions[id-1].gone:
		return nil, session.ErrSessionExpired
	case m.sessions[id-1].nonce != nonce:
		return nil, session.ErrSessionUnknown
	case epoch < m.sessions[id-1].epoch:
		return nil, session.ErrFenced
	}
	return m.sessions[id-1], 0
}

func (m *model) accept(s *modelSession, epoch, mark uint64) {
	s.last, s.epoch, s.mark = m.now, epoch, max(s.mark, mark)
}

// apply returns the answer, and the result of a request that is to be executed as text.
func (m *model) apply(stamp int64, c *session.Command) (a session.Reply) {
	m.now = max(m.now, stamp)
	var lives []*modelSession
	for _, s := range m.sessions {
		if s.gone = s.gone || m.now-s.last >= int64(m.config.Lease); !s.gone {
			lives = append(lives, s)
		}
	}
	switch c.Op {
	case session.Register:
		return m.register(c, lives)
	case session.End:
		s, refusal := m.find(c.Session, c.Nonce, c.Epoch)
		if refusal == 0 {
			s.gone = true
		}
		return session.Reply{Err: refusal}
	case session.KeepAlive:
		refused := make([]session.Refusal, len(c.Beats))
		for i, b := range c.Beats {
			s, refusal := m.find(b.Session, b.Nonce, b.Epoch)
			if refusal == 0 && b.Mark > s.high+m.config.Window {
				refusal = session.ErrBadMark
			}
			if refused[i] = refusal; refusal == 0 {
				m.accept(s, b.Epoch, b.Mark)
			}
		}
		if slices.ContainsFunc(refused, func(r session.Refusal) bool { return r != 0 }) {
			a.Beats = refused
		}
		return a
	case session.Request:
		return m.request(c)
	}
	return a
}

func (m *model) register(c *session.Command, lives []*modelSession) session.Reply {
	own := 0
	for i, s := range m.sessions {
		switch {
		case s.gone:
		case s.nonce == c.Nonce && c.Epoch < s.epoch:
			return session.Reply{Err: session.ErrFenced}
		case s.nonce == c.Nonce && (s.principal != c.Principal || s.ordered != c.Ordered):
			return session.Reply{Err: session.ErrMismatch}
		case s.nonce == c.Nonce:
			m.accept(s, c.Epoch, 0)
			return session.Reply{Session: session.ID(i + 1), Epoch: c.Epoch, High: s.high}
		case s.principal == c.Principal:
			own++
		}
	}
	switch {
	case own >= m.config.PerPrincipal:
		return session.Reply{Err: session.ErrQuota}
	case len(lives) >= m.config.MaxSessions && !m.config.Evict:
		return session.Reply{Err: session.ErrFull}
	case len(lives) >= m.config.MaxSessions:
		slices.MinFunc(lives, func(a, b *modelSession) int { return int(a.last - b.last) }).gone = true
	}
	m.sessions = append(m.sessions, &modelSession{
		nonce: c.Nonce, epoch: c.Epoch, principal: c.Principal, ordered: c.Ordered, last: m.now, done: map[uint64]modelEntry{},
	})
	return session.Reply{Session: session.ID(len(m.sessions)), Epoch: c.Epoch}
}

func (m *model) request(c *session.Command) session.Reply {
	s, refusal := m.find(c.Session, c.Nonce, c.Epoch)
	switch {
	case refusal != 0:
		return session.Reply{Err: refusal}
	case c.Number == 0:
		return session.Reply{Err: session.ErrInvalid}
	case c.Mark >= c.Number:
		return session.Reply{Err: session.ErrBadMark}
	case c.Number <= s.mark:
		return session.Reply{Err: session.ErrStale}
	}
	if e, ok := s.done[c.Number]; ok {
		if e.sum != c.Fingerprint {
			return session.Reply{Err: session.ErrMismatch}
		}
		m.accept(s, c.Epoch, c.Mark)
		answer := session.Reply{Replayed: true, Elided: len(e.result) > m.config.MaxResult}
		if kept := m.kept(e); kept != "" {
			answer.Result = []byte(kept)
		}
		return answer
	}
	mark, size := max(s.mark, c.Mark), 0
	for number, e := range s.done {
		if number > mark {
			size += len(m.kept(e))
		}
	}
	next := max(s.high, mark) + 1
	switch {
	case c.Number > mark+m.config.Window, size >= m.config.MaxBytes && c.Number > mark+1:
		return session.Reply{Err: session.ErrWindowFull}
	case s.ordered && c.Number != next:
		return session.Reply{Err: session.ErrGap, Next: next}
	}
	m.accept(s, c.Epoch, c.Mark)
	s.done[c.Number] = modelEntry{c.Fingerprint, string(c.Payload)}
	s.high = max(s.high, c.Number)
	return session.Reply{Result: c.Payload}
}

// replica is what the property is about: a machine, or one with a planted bug.
type replica interface {
	Apply(stamp int64, c *session.Command, execute func() []byte) session.Reply
	// save and restore replace the machine by what a snapshot of it restores; save only takes one that lives for a while.
	save(t testing.TB) []byte
	restore(t testing.TB)
	peek(t testing.TB, random *rand.Rand)
}

type sound struct {
	*session.Machine
	views []*session.Snapshot
}

func (s *sound) save(t testing.TB) []byte { return saved(t, s.Machine) }

func (s *sound) restore(t testing.TB) {
	m, err := session.Restore(bytes.NewReader(s.save(t)), "")
	if err != nil {
		t.Fatal(err)
	}
	s.Machine, s.views = m, nil
}

// peek begins or ends a snapshot.
func (s *sound) peek(t testing.TB, random *rand.Rand) {
	if len(s.views) > random.IntN(3) {
		s.views[0].Release()
		s.views = s.views[1:]
		return
	}
	view, err := s.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	s.views = append(s.views, view)
}

// randomCommand makes a command of a small world, so that clients, runs, numbers and marks coincide.
func randomCommand(random *rand.Rand) session.Command {
	below := func(n int) uint64 { return uint64(random.IntN(n)) } //nolint:gosec // not negative
	c := session.Command{
		Session: session.ID(below(7)), Epoch: below(3), Number: below(6), Principal: string('a' + rune(below(2))),
		Payload: bytes.Repeat([]byte("x"), int(below(13))), Fingerprint: session.Fingerprint{byte(below(8) / 7)},
	}
	c.Nonce = nonce(byte(c.Session))
	if below(8) > 0 {
		c.Epoch = 0
	}
	if below(4) == 0 {
		c.Mark = below(int(c.Number) + 1)
	}
	c.Op = []session.Op{session.Register, session.KeepAlive, session.End, session.Tick, session.Request, session.Request, session.Request, session.Request}[below(8)]
	switch c.Op {
	case session.End:
		c.Epoch = 3
		if below(3) > 0 {
			c.Op = session.Register
		}
	case session.KeepAlive:
		for range below(4) {
			id := session.ID(below(7))
			beat := session.Beat{Session: id, Nonce: nonce(byte(id))}
			if below(8) == 0 {
				beat.Epoch, beat.Mark = below(4), below(14)
			}
			c.Beats = append(c.Beats, beat)
		}
	}
	if c.Op == session.Register {
		c.Nonce, c.Ordered = nonce(byte(below(7))), below(3) == 0
	}
	return c
}

// kind is what answers are told apart by.
type kind struct {
	refusal          session.Refusal
	replayed, elided bool
}

func equal(a, b session.Reply) bool {
	return a.Err == b.Err && a.Replayed == b.Replayed && a.Elided == b.Elided && a.Session == b.Session && a.Epoch == b.Epoch && a.High == b.High && a.Next == b.Next &&
		bytes.Equal(a.Result, b.Result) && slices.Equal(a.Beats, b.Beats)
}

// explore gives the same random log to replicas that are saved and restored at different places, and to the model. It
// returns what differs, and counts what was answered.
func explore(t testing.TB, seed uint64, seen map[kind]int, begin func(session.Config, *rand.Rand) replica) error {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // not a secret
	config := session.Config{
		Lease: 300, Window: 1 + random.Uint64N(6), MaxResult: 10, MaxBytes: 20, MaxSessions: 1 + random.IntN(5), PerPrincipal: 1 + random.IntN(4), Evict: random.IntN(2) == 0,
	}
	m := &model{config: config}
	var replicas []replica
	for n := range uint64(3) {
		replicas = append(replicas, begin(config, rand.New(rand.NewPCG(seed, n)))) //nolint:gosec // not a secret
	}
	ids := map[byte]session.ID{} // of the live session of each nonce: commands are mostly meant for one
	stamp := int64(0)
	for step := range 150 {
		stamp += random.Int64N(40) - 5
		c := randomCommand(random)
		if id, ok := ids[c.Nonce[15]]; ok && c.Op != session.Register && random.IntN(10) > 0 {
			c.Session = id
		}
		want := m.apply(stamp, &c)
		if c.Op == session.Register && want.Err == 0 {
			ids[c.Nonce[15]] = want.Session
		}
		seen[kind{want.Err, want.Replayed, want.Elided}]++
		for n, r := range replicas {
			got := r.Apply(stamp, &c, func() []byte { return c.Payload })
			if !equal(got, want) {
				return fmt.Errorf("step %d, replica %d: %+v of %+v, want %+v", step, n, got, c, want)
			}
		}
		if random.IntN(10) == 0 {
			replicas[1].restore(t)
		}
		if random.IntN(4) == 0 {
			replicas[2].peek(t, random)
		}
		if random.IntN(20) == 0 || step == 149 {
			first := replicas[0].save(t)
			for n, r := range replicas[1:] {
				if !bytes.Equal(first, r.save(t)) {
					return fmt.Errorf("step %d: replica %d is saved as other bytes", step, n+1)
				}
			}
		}
	}
	return nil
}

func makeSound(t testing.TB) func(session.Config, *rand.Rand) replica {
	return func(c session.Config, _ *rand.Rand) replica {
		m, err := session.New(c)
		if err != nil {
			t.Fatal(err)
		}
		return &sound{Machine: m}
	}
}

// TestModel: machines answer as a model with a memory without end, whatever snapshots they were restored from, and
// replicas are equal to the byte.
func TestModel(t *testing.T) {
	seeds := uint64(20_000)
	if testing.Short() {
		seeds = 500
	}
	seen := map[kind]int{}
	for seed := range seeds {
		if err := explore(t, seed, seen, makeSound(t)); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	if len(seen) != 14 { // executed, replayed, elided, and the refusals but for ErrInProgress
		t.Errorf("%d kinds of answers were seen, want 14: it is blind", len(seen))
	}
}

// FuzzModel is TestModel with seeds that are explored.
func FuzzModel(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) {
		if err := explore(t, seed, map[kind]int{}, makeSound(t)); err != nil {
			t.Fatal(err)
		}
	})
}

// planted is a machine with a bug that a real system had.
type planted struct {
	*sound
	random *rand.Rand
	bug    func(p *planted, stamp int64, c *session.Command, execute func() []byte) session.Reply
	since  map[string]bool // requests executed since the last restore
}

func (p *planted) Apply(stamp int64, c *session.Command, execute func() []byte) session.Reply {
	return p.bug(p, stamp, c, execute)
}

func (p *planted) restore(t testing.TB) {
	p.sound.restore(t)
	clear(p.since)
}

// TestPlantedBugs: each is noticed.
func TestPlantedBugs(t *testing.T) {
	for name, bug := range map[string]func(p *planted, stamp int64, c *session.Command, execute func() []byte) session.Reply{
		"sessions expire by the replica's own clock": func(p *planted, stamp int64, c *session.Command, execute func() []byte) session.Reply {
			return p.Machine.Apply(stamp+p.random.Int64N(50), c, execute)
		},
		"the evicted session is anyone": func(p *planted, stamp int64, c *session.Command, execute func() []byte) session.Reply {
			if c.Op == session.Register && p.random.IntN(3) == 0 { // as a range over a map would choose
				id := session.ID(p.random.IntN(8))
				p.Machine.Apply(stamp, &session.Command{Op: session.End, Session: id, Nonce: nonce(byte(p.random.IntN(12))), Epoch: 9}, nil)
			}
			return p.Machine.Apply(stamp, c, execute)
		},
		"answers are dropped at the window": func(p *planted, stamp int64, c *session.Command, execute func() []byte) session.Reply {
			a := p.Machine.Apply(stamp, c, execute)
			if a.Err == session.ErrWindowFull {
				more := *c
				more.Mark = c.Number - 1
				a = p.Machine.Apply(stamp, &more, execute)
			}
			return a
		},
		"duplicates do not renew": func(p *planted, stamp int64, c *session.Command, execute func() []byte) session.Reply {
			before := p.save(t)
			a := p.Machine.Apply(stamp, c, execute)
			if a.Replayed {
				if m, err := session.Restore(bytes.NewReader(before), ""); err == nil {
					p.Machine = m
					p.Machine.Apply(stamp, &session.Command{Op: session.Tick}, nil)
				}
			}
			return a
		},
		"answers are not in the snapshot": func(p *planted, stamp int64, c *session.Command, execute func() []byte) session.Reply {
			a := p.Machine.Apply(stamp, c, execute)
			request := fmt.Sprint(c.Session, c.Number)
			switch {
			case a.Replayed && !p.since[request]:
				a = session.Reply{Result: execute()}
			case c.Op == session.Request && a.Err == 0:
				p.since[request] = true
			}
			return a
		},
		"forgotten requests run again": func(p *planted, stamp int64, c *session.Command, execute func() []byte) session.Reply {
			a := p.Machine.Apply(stamp, c, execute)
			if a.Err == session.ErrStale || a.Err == session.ErrSessionExpired && c.Op == session.Request {
				a = session.Reply{Result: execute()}
			}
			return a
		},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(50) {
				err := explore(t, seed, map[kind]int{}, func(c session.Config, random *rand.Rand) replica {
					return &planted{sound: makeSound(t)(c, random).(*sound), random: random, bug: bug, since: map[string]bool{}}
				})
				if err != nil {
					return
				}
			}
			t.Error("the model has not noticed")
		})
	}
}
