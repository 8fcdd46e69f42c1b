package session_test

import (
	"testing"

	"github.com/everonce/everonce/session"
)

// TestAbandon: a request that was abandoned leaves its number unused, for another request too, but its renewal and its
// mark remain.
func TestAbandon(t *testing.T) {
	m := newMachine(t, nil)
	id := m.register(1)
	m.do(request(id, 1, 0, "a"))
	begun := request(id, 2, 1, "b")
	if a := m.Begin(m.now, &begun); !a.Execute {
		t.Fatalf("%+v", a)
	}
	m.is("a copy of what is executed", m.do(begun), session.ErrInProgress, "", 1)
	m.Abandon(&begun)
	m.is("what the mark passed stays passed", m.do(request(id, 1, 0, "a")), session.ErrStale, "", 1)
	m.is("the number, for another request", m.do(request(id, 2, 1, "c")), 0, "c", 2)
	m.is("and again", m.do(request(id, 2, 1, "c")), 0, "c", 2)
	if _, err := m.Snapshot(); err != nil {
		t.Errorf("nothing is executed any more: %v", err)
	}
}

// TestAbandonInOrder: an ordered session expects the number that came to nothing again, and none while one is executed.
func TestAbandonInOrder(t *testing.T) {
	m := newMachine(t, nil)
	id := m.register(1, func(c *session.Command) { c.Ordered = true })
	first := request(id, 1, 0, "a")
	if a := m.Begin(m.now, &first); !a.Execute {
		t.Fatalf("%+v", a)
	}
	if a := m.do(request(id, 2, 0, "b")); a.Err != session.ErrGap || a.Next != 1 {
		t.Errorf("the next one while the first is executed: %+v", a)
	}
	m.Abandon(&first)
	if a := m.do(request(id, 2, 0, "b")); a.Err != session.ErrGap || a.Next != 1 {
		t.Errorf("the next one: %+v", a)
	}
	m.is("the first again", m.do(first), 0, "a", 1)
	m.is("the next one", m.do(request(id, 2, 0, "b")), 0, "b", 2)
}

// TestAbandonAfterTheEnd of the session, and after the mark has passed the number: nothing is left to take back.
func TestAbandonAfterTheEnd(t *testing.T) {
	m := newMachine(t, nil)
	id := m.register(1)
	passed := request(id, 1, 0, "a")
	m.Begin(m.now, &passed)
	m.is("the mark passes it", m.do(request(id, 2, 1, "b")), 0, "b", 1)
	m.Abandon(&passed)
	m.is("it is stale", m.do(passed), session.ErrStale, "", 1)
	ended := request(id, 3, 1, "c")
	m.Begin(m.now, &ended)
	m.do(session.Command{Op: session.End, Session: id, Nonce: nonce(1)})
	m.Abandon(&ended)
	if _, err := m.Snapshot(); err != nil {
		t.Errorf("nothing is executed any more: %v", err)
	}
}
