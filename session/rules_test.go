package session_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/everonce/everonce/session"
)

const lease = int64(time.Minute)

// machine is a machine with what the tests do to it.
type machine struct {
	*session.Machine
	t    *testing.T
	now  int64
	runs int // requests that were executed
}

func newMachine(t *testing.T, change func(*session.Config)) *machine {
	t.Helper()
	config := session.Config{Lease: time.Duration(lease), Window: 4, MaxResult: 100, MaxBytes: 120}
	if change != nil {
		change(&config)
	}
	m, err := session.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return &machine{Machine: m, t: t}
}

// do applies a command: a request is answered with its payload.
func (m *machine) do(c session.Command) session.Reply {
	return m.Apply(m.now, &c, func() []byte {
		m.runs++
		return c.Payload
	})
}

func nonce(n byte) session.Nonce { return session.Nonce{15: n} }

// register begins a session with the nonce n.
func (m *machine) register(n byte, change ...func(*session.Command)) session.ID {
	m.t.Helper()
	c := session.Command{Op: session.Register, Nonce: nonce(n)}
	for _, f := range change {
		f(&c)
	}
	a := m.do(c)
	if a.Err != 0 || a.Session == 0 {
		m.t.Fatalf("Register: %+v", a)
	}
	return a.Session
}

// request makes the request of a number, whose fingerprint and payload are text.
func request(id session.ID, number, mark uint64, text string) session.Command {
	c := session.Command{Op: session.Request, Session: id, Nonce: nonce(1), Number: number, Mark: mark, Payload: []byte(text)}
	copy(c.Fingerprint[:], text)
	return c
}

// is checks an answer, and how often anything was executed until now.
func (m *machine) is(what string, a session.Reply, want session.Refusal, result string, runs int) {
	m.t.Helper()
	if a.Err != want || string(a.Result) != result || m.runs != runs {
		m.t.Errorf("%s: %q %q after %d executions, want %q %q and %d", what, a.Err.Or(), a.Result, m.runs, want.Or(), result, runs)
	}
}

// unchanged checks that do changes nothing but the time.
func (m *machine) unchanged(do func()) {
	m.t.Helper()
	before := saved(m.t, m.Machine)
	do()
	if !bytes.Equal(before, saved(m.t, m.Machine)) {
		m.t.Error("a refused command has changed the state")
	}
}

func saved(t testing.TB, m *session.Machine) []byte {
	t.Helper()
	var b bytes.Buffer
	s, err := m.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	if _, err := s.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestRule1TimeIsTheStamps: sessions expire by the stamps, which never go back.
func TestRule1TimeIsTheStamps(t *testing.T) {
	m := newMachine(t, nil)
	m.now = lease
	early, late := m.register(1), m.register(2)
	m.now = 1 // an older stamp is no time
	m.is("by an older stamp", m.do(request(early, 1, 0, "a")), 0, "a", 1)
	m.now = 2*lease - 1
	m.is("a lease less a nanosecond later", m.do(request(early, 2, 0, "b")), 0, "b", 2)
	m.now = 2 * lease
	m.do(session.Command{Op: session.Tick})
	if m.Len() != 1 {
		t.Errorf("%d sessions, want the one that was renewed", m.Len())
	}
	c := request(late, 1, 0, "c")
	c.Nonce = nonce(2)
	m.is("of the other one", m.do(c), session.ErrSessionExpired, "", 2)
}

// TestRule2NothingRunsWithoutASession: expired and unknown are told apart, and another client's session is unknown.
func TestRule2NothingRunsWithoutASession(t *testing.T) {
	m := newMachine(t, nil)
	id := m.register(1)
	m.do(session.Command{Op: session.End, Session: id, Nonce: nonce(1)})
	m.unchanged(func() {
		m.is("of one that was ended", m.do(request(id, 1, 0, "a")), session.ErrSessionExpired, "", 0)
		m.is("of one to come", m.do(request(id+1, 1, 0, "a")), session.ErrSessionUnknown, "", 0)
		m.is("of none", m.do(request(0, 1, 0, "a")), session.ErrSessionUnknown, "", 0)
	})
	id = m.register(2)
	m.unchanged(func() { m.is("with another nonce", m.do(request(id, 1, 0, "a")), session.ErrSessionUnknown, "", 0) })
}

// TestRule3AnEarlierRunIsFenced: a higher epoch takes the session.
func TestRule3AnEarlierRunIsFenced(t *testing.T) {
	m := newMachine(t, nil)
	id := m.register(1)
	later := request(id, 2, 0, "b")
	later.Epoch = 7
	m.is("the later run", m.do(later), 0, "b", 1)
	m.unchanged(func() {
		m.is("the earlier run", m.do(request(id, 1, 0, "a")), session.ErrFenced, "", 1)
		a := m.do(session.Command{Op: session.KeepAlive, Beats: []session.Beat{{Session: id, Nonce: nonce(1), Epoch: 6}}})
		if len(a.Beats) != 1 || a.Beats[0] != session.ErrFenced {
			t.Errorf("its keep-alive: %+v", a)
		}
	})
}

// TestRule4TheMark: it is below the number; one that is late is ignored; what is at or below it is forgotten.
func TestRule4TheMark(t *testing.T) {
	m := newMachine(t, nil)
	id := m.register(1)
	for n := range uint64(3) {
		m.do(request(id, n+1, 0, fmt.Sprint(n+1)))
	}
	m.unchanged(func() {
		m.is("at the number", m.do(request(id, 4, 4, "4")), session.ErrBadMark, "", 3)
		m.is("above the number", m.do(request(id, 4, 9, "4")), session.ErrBadMark, "", 3)
	})
	m.is("advanced", m.do(request(id, 4, 2, "4")), 0, "4", 4)
	m.is("a late one", m.do(request(id, 5, 1, "5")), 0, "5", 5)
	m.is("kept above it", m.do(request(id, 3, 0, "3")), 0, "3", 5)
	m.is("forgotten below it", m.do(request(id, 2, 0, "2")), session.ErrStale, "", 5)
}

// TestRule5WhatIsBelowTheMarkIsStale: also a call that never arrived and was given up.
func TestRule5WhatIsBelowTheMarkIsStale(t *testing.T) {
	m := newMachine(t, nil)
	id := m.register(1)
	m.is("the second, and the first was given up", m.do(request(id, 2, 1, "b")), 0, "b", 1)
	m.unchanged(func() { m.is("the first, late", m.do(request(id, 1, 0, "a")), session.ErrStale, "", 1) })
}

// TestRule6TheAnswerIsReplayed: to the same request alone.
func TestRule6TheAnswerIsReplayed(t *testing.T) {
	m := newMachine(t, nil)
	id := m.register(1)
	m.do(request(id, 1, 0, "a"))
	if a := m.do(request(id, 1, 0, "a")); !a.Replayed || string(a.Result) != "a" || m.runs != 1 {
		t.Errorf("%+v after %d executions", a, m.runs)
	}
	m.unchanged(func() { m.is("another request", m.do(request(id, 1, 0, "other")), session.ErrMismatch, "", 1) })
}

// TestRule7InProgress: while it is executed, the same request is refused, and there is no snapshot.
func TestRule7InProgress(t *testing.T) {
	m := newMachine(t, nil)
	id := m.register(1)
	c := request(id, 1, 0, "a")
	if a := m.Begin(0, &c); !a.Execute {
		t.Fatalf("%+v", a)
	}
	if a := m.Begin(0, &c); a.Err != session.ErrInProgress {
		t.Errorf("%+v", a)
	}
	if _, err := m.Snapshot(); !errors.Is(err, session.ErrBusy) {
		t.Errorf("Snapshot: %v", err)
	}
	m.is("recorded", m.Record(&c, []byte("a")), 0, "a", 0)
	m.is("replayed", m.do(c), 0, "a", 0)
}

// TestRule8TheWindow: nothing is evicted for a client that acknowledges nothing.
func TestRule8TheWindow(t *testing.T) {
	m := newMachine(t, nil)
	id := m.register(1)
	m.is("the window's last", m.do(request(id, 4, 0, "4")), 0, "4", 1)
	m.unchanged(func() {
		m.is("one more", m.do(request(id, 5, 0, "5")), session.ErrWindowFull, "", 1)
		m.is("an overflow", m.do(request(id, 1<<64-1, 0, "x")), session.ErrWindowFull, "", 1)
	})
	m.is("one more, with a mark", m.do(request(id, 5, 1, "5")), 0, "5", 2)
	m.is("kept", m.do(request(id, 4, 0, "4")), 0, "4", 2)

	large := strings.Repeat("x", 60)
	m.do(request(id, 6, 5, large))
	m.do(request(id, 7, 5, large))
	m.unchanged(func() { m.is("over the quota of bytes", m.do(request(id, 8, 5, "8")), session.ErrWindowFull, "", 4) })
	m.is("with a mark", m.do(request(id, 8, 6, "8")), 0, "8", 5)

	m = newMachine(t, nil)
	id = m.register(1)
	m.do(request(id, 2, 0, large))
	m.do(request(id, 3, 0, large))
	m.is("over the quota", m.do(request(id, 4, 0, "4")), session.ErrWindowFull, "", 2)
	m.is("over the quota, but the mark cannot pass it before", m.do(request(id, 1, 0, "1")), 0, "1", 3)
}

// TestRule9OrderedAndPipelined: holes are for those who want them.
func TestRule9OrderedAndPipelined(t *testing.T) {
	m := newMachine(t, nil)
	id := m.register(1)
	m.is("a hole", m.do(request(id, 2, 0, "b")), 0, "b", 1)
	m.is("which is filled", m.do(request(id, 1, 0, "a")), 0, "a", 2)

	m = newMachine(t, nil)
	id = m.register(1, func(c *session.Command) { c.Ordered = true })
	m.unchanged(func() {
		a := m.do(request(id, 2, 0, "b"))
		if m.is("a gap", a, session.ErrGap, "", 0); a.Next != 1 {
			t.Errorf("expects %d", a.Next)
		}
	})
	m.is("in order", m.do(request(id, 1, 0, "a")), 0, "a", 1)
	m.is("after a number that was given up", m.do(request(id, 3, 2, "c")), 0, "c", 2)
}

// TestRule10ALargeResultIsElided: it was executed, and is not again.
func TestRule10ALargeResultIsElided(t *testing.T) {
	m := newMachine(t, nil)
	id := m.register(1)
	large := strings.Repeat("x", 101)
	m.is("first", m.do(request(id, 1, 0, large)), 0, large, 1)
	if a := m.do(request(id, 1, 0, large)); !a.Replayed || !a.Elided || a.Result != nil || m.runs != 1 {
		t.Errorf("%+v after %d executions", a, m.runs)
	}
}

// TestARegistrationThatIsRepeated leaks no session.
func TestARegistrationThatIsRepeated(t *testing.T) {
	m := newMachine(t, nil)
	id := m.register(1)
	if again := m.register(1); again != id || m.Len() != 1 {
		t.Errorf("session %d, then %d; %d in all", id, again, m.Len())
	}
	m.do(request(id, 3, 0, "c"))
	if a := m.do(session.Command{Op: session.Register, Nonce: nonce(1), Epoch: 1}); a.Epoch != 1 || a.High != 3 {
		t.Errorf("by a later run: %+v, and it is to go on above 3", a)
	}
	m.unchanged(func() {
		if a := m.do(session.Command{Op: session.Register, Nonce: nonce(1), Epoch: 1, Principal: "eve"}); a.Err != session.ErrMismatch {
			t.Errorf("of another principal: %+v", a)
		}
	})
}

// TestCapacity: registrations are refused, or evict by choice, and one principal cannot take it all.
func TestCapacity(t *testing.T) {
	by := func(name string) func(*session.Command) { return func(c *session.Command) { c.Principal = name } }
	m := newMachine(t, func(c *session.Config) { c.MaxSessions, c.PerPrincipal = 3, 2 })
	first := m.register(1, by("a"))
	m.register(2, by("a"))
	m.unchanged(func() {
		if a := m.do(session.Command{Op: session.Register, Nonce: nonce(3), Principal: "a"}); a.Err != session.ErrQuota {
			t.Errorf("over the quota: %+v", a)
		}
	})
	m.register(4, by("b"))
	m.unchanged(func() {
		if a := m.do(session.Command{Op: session.Register, Nonce: nonce(5), Principal: "c"}); a.Err != session.ErrFull {
			t.Errorf("over the capacity: %+v", a)
		}
	})
	m.do(session.Command{Op: session.End, Session: first, Nonce: nonce(1)})
	m.register(6, by("a"))

	m = newMachine(t, func(c *session.Config) { c.MaxSessions, c.Evict = 2, true })
	quiet, busy := m.register(2), m.register(1)
	m.now++
	c := request(quiet, 1, 0, "a")
	c.Nonce = nonce(2)
	m.do(c) // now the other one is
	m.register(3)
	m.is("the quietest is evicted", m.do(request(busy, 1, 0, "a")), session.ErrSessionExpired, "", 1)
	m.is("and no other", m.do(c), 0, "a", 1)
}

// TestEveryAcceptedCommandRenews: a duplicate too, and keep-alives of many sessions at once.
func TestEveryAcceptedCommandRenews(t *testing.T) {
	m := newMachine(t, nil)
	id, other := m.register(1), m.register(2)
	m.do(request(id, 1, 0, "a"))
	for range 3 {
		m.now += lease - 1
		m.is("a duplicate", m.do(request(id, 1, 0, "a")), 0, "a", 1)
		a := m.do(session.Command{Op: session.KeepAlive, Beats: []session.Beat{
			{Session: other, Nonce: nonce(2), Mark: 1}, {Session: 99, Nonce: nonce(2)}, {Session: id, Nonce: nonce(1), Mark: 9},
		}})
		if len(a.Beats) != 3 || a.Beats[0] != 0 || a.Beats[1] != session.ErrSessionUnknown || a.Beats[2] != session.ErrBadMark {
			t.Fatalf("%+v", a)
		}
	}
	if m.Len() != 2 {
		t.Errorf("%d sessions, want 2", m.Len())
	}
}

// TestBadCommands change nothing.
func TestBadCommands(t *testing.T) {
	m := newMachine(t, nil)
	id := m.register(1)
	m.unchanged(func() {
		for what, c := range map[string]session.Command{
			"no operation":        {},
			"an unknown one":      {Op: 99},
			"the number 0":        request(id, 0, 0, "a"),
			"too many beats":      {Op: session.KeepAlive, Beats: make([]session.Beat, session.MaxBeats+1)},
			"a principal's essay": {Op: session.Register, Nonce: nonce(2), Principal: strings.Repeat("x", session.MaxPrincipal+1)},
		} {
			if a := m.do(c); a.Err != session.ErrInvalid {
				t.Errorf("%s: %+v", what, a)
			}
		}
	})
}

// TestConfig refuses what cannot be.
func TestConfig(t *testing.T) {
	for what, c := range map[string]session.Config{
		"no lease":        {},
		"a negative size": {Lease: 1, MaxBytes: -1},
		"a huge window":   {Lease: 1, Window: 1 << 40},
		"a long name":     {Lease: 1, Name: strings.Repeat("x", 256)},
	} {
		if _, err := session.New(c); !errors.Is(err, session.ErrConfig) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
