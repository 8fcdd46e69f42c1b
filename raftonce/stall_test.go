package raftonce_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/everonce/everonce/raftonce"
)

// stall is what stands still of a node whose process does: the answers of the others wait to be read, and its log to be
// written, for which its main loop waits.
type stall struct {
	*raft.InmemTransport
	raft.LogStore
	answers atomic.Pointer[map[raft.ServerAddress]chan struct{}]
	disk    atomic.Pointer[chan struct{}]
}

func (s *stall) AppendEntries(id raft.ServerID, to raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	err := s.InmemTransport.AppendEntries(id, to, args, resp)
	if held := s.answers.Load(); held != nil {
		<-(*held)[to]
	}
	return err
}

func (*stall) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

func (s *stall) StoreLogs(logs []*raft.Log) error {
	if held := s.disk.Load(); held != nil {
		<-*held
	}
	return s.LogStore.StoreLogs(logs)
}

// TestReadAfterAPause: a leader that was suspended, and continues after another one was elected, lets no client read:
// not even if it then finds responses to its heartbeats, which were sent before the pause.
func TestReadAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stalls := map[raft.ServerAddress]*stall{}
		c := startClusterOver(t, 10_000, nil, func(m *member, logs raft.LogStore) (raft.Transport, raft.LogStore) {
			s := &stall{InmemTransport: m.transport, LogStore: logs}
			stalls[m.address] = s
			return s, s
		})
		defer c.close()
		leader := c.leader()
		id := register(t, leader)
		if err := leader.Read(time.Second); err != nil {
			t.Fatal(err)
		}

		s, disk, answers := stalls[leader.address], make(chan struct{}), map[raft.ServerAddress]chan struct{}{}
		var others []raft.ServerAddress
		for _, m := range c.members {
			if m != leader {
				others = append(others, m.address)
				answers[m.address] = make(chan struct{})
			}
		}
		s.answers.Store(&answers)
		time.Sleep(200 * time.Millisecond) // heartbeats are under way to both, and answered
		s.disk.Store(&disk)
		stuck := leader.raft.Apply(nil, 0)
		synctest.Wait()
		c.isolate(leader)
		ask(t, c.leader(), request(id, 1, "pay"))

		read := make(chan error, 1)
		go func() { read <- leader.Read(time.Second) }()
		synctest.Wait()
		close(answers[others[0]]) // the leader has heard of a majority
		synctest.Wait()
		close(disk)
		synctest.Wait()
		close(answers[others[1]])
		if err := <-read; err == nil && leader.ledger.executed()["pay"] == 0 {
			t.Error("it lets read, and has not what the next leader has answered")
		}
		if stuck.Error() == nil {
			t.Error("a leader without followers has committed")
		}
		c.join(leader)
		c.settle()
	})
}

// TestReadOfALeaderThatStandsStill ends with its timeout: who waits for its entry, and who for the entry before.
func TestReadOfALeaderThatStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stalls := map[raft.ServerAddress]*stall{}
		c := startClusterOver(t, 10_000, nil, func(m *member, logs raft.LogStore) (raft.Transport, raft.LogStore) {
			stalls[m.address] = &stall{InmemTransport: m.transport, LogStore: logs}
			return stalls[m.address], stalls[m.address]
		})
		defer c.close()
		leader := c.leader()
		disk, read := make(chan struct{}), make(chan error, 2)
		stalls[leader.address].disk.Store(&disk)
		for range cap(read) {
			go func() { read <- leader.Read(time.Second) }()
			synctest.Wait()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if len(read) != cap(read) {
			t.Errorf("%d of %d reads have ended", len(read), cap(read))
		}
		close(disk)
		for range cap(read) {
			if err := <-read; !errors.Is(err, raftonce.ErrRetry) {
				t.Error(err)
			}
		}
		time.Sleep(time.Second) // raft answers no entry that is under way when it is shut down
	})
}

// TestReadsShareAnEntry: who reads while an entry for readers is on its way waits for another one, and all of these for
// the same.
func TestReadsShareAnEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stalls := map[raft.ServerAddress]*stall{}
		c := startClusterOver(t, 10_000, nil, func(m *member, logs raft.LogStore) (raft.Transport, raft.LogStore) {
			stalls[m.address] = &stall{InmemTransport: m.transport, LogStore: logs}
			return stalls[m.address], stalls[m.address]
		})
		defer c.close()
		leader := c.leader()
		before, disk := leader.raft.LastIndex(), make(chan struct{})
		stalls[leader.address].disk.Store(&disk)
		read := make(chan error, 20)
		for range cap(read) {
			go func() { read <- leader.Read(time.Second) }()
			synctest.Wait() // the first one is on its way
		}
		close(disk)
		for range cap(read) {
			if err := <-read; err != nil {
				t.Error(err)
			}
		}
		if n := leader.raft.LastIndex() - before; n != 2 {
			t.Errorf("%d reads cost %d entries, want 2", cap(read), n)
		}
	})
}
