package raftonce_test

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/raftonce"
	"github.com/everonce/everonce/session"
)

var nonce = session.Nonce{1}

// register begins a session on the leader.
func register(t *testing.T, m *member) session.ID {
	t.Helper()
	a, err := m.Apply(&session.Command{Op: session.Register, Nonce: nonce}, time.Second)
	if err != nil || a.Err != 0 {
		t.Fatal(a.Err, err)
	}
	return a.Session
}

func request(id session.ID, number uint64, payload string) *session.Command {
	return &session.Command{Op: session.Request, Session: id, Nonce: nonce, Number: number, Payload: []byte(payload)}
}

// ask applies a command, and returns the state machine's answer.
func ask(t *testing.T, m *member, c *session.Command) (string, session.Reply) {
	t.Helper()
	a, err := m.Apply(c, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	b, err := raftonce.Result(a)
	if err != nil {
		return err.Error(), a
	}
	return string(b), a
}

// TestDuplicateAfterLeaderChange: the next leader answers a request that the last one has executed, an error as well.
func TestDuplicateAfterLeaderChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		defer c.close()
		first := c.leader()
		id := register(t, first)
		paid, _ := ask(t, first, request(id, 1, "pay"))
		refused, _ := ask(t, first, request(id, 2, "refuse"))
		for _, m := range c.members {
			c.transfer(m)
			if got, a := ask(t, m, request(id, 1, "pay")); got != paid || !a.Replayed {
				t.Errorf("%s answers %q, %+v; want %q", m.address, got, a, paid)
			}
			if got, a := ask(t, m, request(id, 2, "refuse")); got != refused || got != "refused" || !a.Replayed {
				t.Errorf("%s answers %q, %+v; want %q", m.address, got, a, refused)
			}
		}
		if got := c.settle(); got["pay"] != 1 || got["refuse"] != 1 {
			t.Errorf("executed: %v", got)
		}
	})
}

// TestExpiredOnEveryReplica: every leader refuses a session that has ended, and no node has executed the request.
func TestExpiredOnEveryReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		defer c.close()
		id := register(t, c.leader())
		time.Sleep(lease + lease/5) // Run tells the time
		c.settle()
		for _, m := range c.members {
			if n := m.fsm.Sessions(); n != 0 {
				t.Errorf("%s has %d sessions", m.address, n)
			}
			c.transfer(m)
			if _, a := ask(t, m, request(id, 1, "pay")); a.Err != session.ErrSessionExpired {
				t.Errorf("%s answers %+v", m.address, a)
			}
		}
		if got := c.settle(); len(got) != 0 {
			t.Errorf("executed: %v", got)
		}
	})
}

// TestTimeStandsStill: without a leader no client can renew, and so no session ends.
func TestTimeStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		defer c.close()
		id := register(t, c.leader())
		for _, m := range c.members {
			c.isolate(m)
		}
		time.Sleep(5 * lease)
		for _, m := range c.members {
			c.join(m)
		}
		if got, a := ask(t, c.leader(), request(id, 1, "pay")); got != "pay 1" {
			t.Errorf("%q, %+v", got, a)
		}
	})
}

// TestRestoreOfABackup: its sessions live on, although the backup is older than the lease. Later sessions are gone.
func TestRestoreOfABackup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		defer c.close()
		leader := c.leader()
		id := register(t, leader)
		ask(t, leader, request(id, 1, "before"))
		future := leader.raft.Snapshot()
		if err := future.Error(); err != nil {
			t.Fatal(err)
		}
		meta, backup, err := future.Open()
		if err != nil {
			t.Fatal(err)
		}
		ask(t, leader, request(id, 2, "after"))
		time.Sleep(3 * lease)
		if _, a := ask(t, leader, request(id, 3, "late")); a.Err != session.ErrSessionExpired {
			t.Fatalf("%+v", a)
		}
		if err := leader.raft.Restore(meta, backup, 0); err != nil {
			t.Fatal(err)
		}
		if _, a := ask(t, leader, request(id, 1, "before")); !a.Replayed {
			t.Errorf("a duplicate from before the backup gets %+v", a)
		}
		ask(t, leader, request(id, 2, "after"))
		if got := c.settle(); got["before"] != 1 || got["after"] != 1 || len(got) != 2 {
			t.Errorf("executed: %v", got)
		}
	})
}

// lag has a follower miss a request, whose entry is only in a snapshot when the follower comes back and becomes the
// leader. It returns the answer to the request's duplicate there, and how often the follower executed it.
func lag(t *testing.T, planted func(*raftonce.FSM) raft.FSM) (string, session.Reply, int) {
	t.Helper()
	c := startCluster(t, 2, planted)
	defer c.close()
	leader := c.leader()
	id := register(t, leader)
	ask(t, leader, request(id, 1, "before"))
	follower := c.members[0]
	if follower == leader {
		follower = c.members[1]
	}
	time.Sleep(time.Second)
	c.isolate(follower)
	ask(t, leader, request(id, 2, "pay"))
	for n := uint64(3); n < 9; n++ {
		ask(t, leader, request(id, n, "more"))
	}
	if err := leader.raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	ask(t, leader, request(id, 9, "after"))
	c.join(follower)
	time.Sleep(10 * time.Second)
	if follower.raft.Stats()["last_snapshot_index"] == "0" {
		t.Fatal("the follower was given no snapshot")
	}
	c.transfer(follower)
	got, a := ask(t, follower, request(id, 2, "pay"))
	return got, a, follower.ledger.executed()["pay"]
}

// TestSnapshotToLaggingFollower: a duplicate of a request from before the snapshot is replayed.
func TestSnapshotToLaggingFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if got, a, times := lag(t, nil); got != "pay 2" || !a.Replayed || times != 1 {
			t.Errorf("the duplicate got %q, %+v; executed %d times", got, a, times)
		}
	})
}

type forgetful struct{ *raftonce.FSM }

func (f forgetful) Restore(from io.ReadCloser) error { return f.RestoreWithoutSessions(from) }

// TestPlantedSessionsOutsideOfSnapshot: the test above sees that fault.
func TestPlantedSessionsOutsideOfSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, times := lag(t, func(f *raftonce.FSM) raft.FSM { return forgetful{f} })
		if a.Replayed || times != 2 {
			t.Errorf("the fault is not seen: %+v, executed %d times", a, times)
		}
	})
}

// TestErrorsOfApply: what a node that is not, or no longer, the leader says.
func TestErrorsOfApply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		defer c.close()
		leader := c.leader()
		id := register(t, leader)
		time.Sleep(time.Second)
		for _, m := range c.members {
			if m == leader {
				continue
			}
			_, err := m.Apply(request(id, 1, "pay"), time.Second)
			var elsewhere *raftonce.NotLeaderError
			if !errors.As(err, &elsewhere) || elsewhere.Leader != string(leader.address) || !errors.Is(err, raftonce.ErrNotLeader) {
				t.Errorf("a follower answers %v", err)
			}
			if err := m.Read(time.Second); !errors.Is(err, raftonce.ErrNotLeader) {
				t.Errorf("a follower lets read: %v", err)
			}
		}
		c.isolate(leader)
		_, err := leader.Apply(request(id, 1, "pay"), time.Second)
		if !errors.Is(err, raftonce.ErrRetry) || !errors.Is(err, raft.ErrLeadershipLost) {
			t.Errorf("a leader that was cut off answers %v", err)
		}
		if err := leader.Read(time.Second); err == nil {
			t.Error("a leader that was cut off lets read")
		}
		if _, err := c.leader().Apply(&session.Command{Principal: string(make([]byte, 256))}, time.Second); !errors.Is(err, session.ErrEncoding) {
			t.Errorf("a command over the limit: %v", err)
		}
		command, err := (&session.Command{Op: session.Tick + 1}).AppendTo(nil)
		if err != nil {
			t.Fatal(err)
		}
		c.leader().Handle("stranger", command, time.Second) // and no node has panicked
		c.join(leader)
	})
}

// TestPayloadTooLarge: a payload that is too large fails, and is not in the log.
func TestPayloadTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		defer c.close()
		client := c.client(c.send)
		leader := c.leader()
		before := leader.raft.LastIndex()
		large := make([]byte, 512<<10+1)
		if _, err := client.Do(t.Context(), large); !errors.Is(err, raftonce.ErrTooLarge) || errors.Is(err, everonce.ErrOutcomeUnknown) {
			t.Error(err)
		}
		command, err := (&session.Command{Op: session.Register, Payload: large}).AppendTo(nil) // by a stranger
		if err != nil {
			t.Fatal(err)
		}
		leader.Handle("stranger", command, time.Second)
		if n := leader.raft.LastIndex(); n != before {
			t.Errorf("%d entries were appended", n-before)
		}
		if _, err := client.Do(t.Context(), large[1:]); err != nil {
			t.Error(err)
		}
		if err := client.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestReadAfterLeaderChange: the new leader lets read only when it has applied what the old one answered.
func TestReadAfterLeaderChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		defer c.close()
		leader := c.leader()
		id := register(t, leader)
		gate := make(chan struct{})
		for _, m := range c.members {
			if m != leader {
				m.ledger.mu.Lock()
				m.ledger.gate = gate
				m.ledger.mu.Unlock()
			}
		}
		ask(t, leader, request(id, 1, "pay"))
		c.isolate(leader)
		next := c.leader()
		time.AfterFunc(time.Second, func() { close(gate) })
		for range 3 {
			if err := next.Read(time.Minute); err != nil {
				t.Fatal(err)
			}
			if got := next.ledger.executed()["pay"]; got != 1 {
				t.Errorf("%d payments are read, want 1", got)
			}
		}
		c.join(leader)
	})
}
