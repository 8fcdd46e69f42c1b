package raftonce_test

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"

	"github.com/everonce/everonce/raftonce"
	"github.com/everonce/everonce/session"
)

// bare is what one writes without raftonce: applied index and effect are one commit, and nothing tells a duplicate.
type bare struct {
	raft.FSM // the rest
	db       *bbolt.DB
}

func (b bare) Apply(log *raft.Log) any { return b.ApplyBatch([]*raft.Log{log})[0] }

func (b bare) ApplyBatch(logs []*raft.Log) []any {
	answers := make([]any, len(logs))
	err := b.db.Update(func(tx *bbolt.Tx) error {
		meta, err := tx.CreateBucketIfNotExists([]byte("meta"))
		if err != nil {
			return err
		}
		for i, log := range logs {
			if log.Type == raft.LogCommand {
				if answers[i], err = add(tx, log.Data); err != nil {
					return err
				}
			}
		}
		return meta.Put([]byte("applied"), fmt.Append(nil, logs[len(logs)-1].Index))
	})
	if err != nil {
		panic(err)
	}
	return answers
}

// add is the work of all: a row for each of a thousand accounts.
func add(tx *bbolt.Tx, payload []byte) ([]byte, error) {
	b, err := tx.CreateBucketIfNotExists([]byte("accounts"))
	if err != nil {
		return nil, err
	}
	return []byte("done"), b.Put(payload[:3], payload)
}

// sums is the same in memory.
type sums struct {
	raft.FSM
	mu       sync.Mutex
	accounts map[string][]byte
}

func (s *sums) Apply(log *raft.Log) any {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accounts[string(log.Data[:3])] = log.Data
	return []byte("done")
}

// alone is a node whose log is durable.
func alone(b *testing.B, name string, machine func(dir string, settings *raft.Config, log raft.LogStore, snapshots raft.SnapshotStore) raft.FSM) *raft.Raft {
	b.Helper()
	dir := b.TempDir()
	log, err := raftboltdb.NewBoltStore(filepath.Join(dir, "log"))
	if err != nil {
		b.Fatal(err)
	}
	snapshots := raft.NewDiscardSnapshotStore()
	_, transport := raft.NewInmemTransport(raft.ServerAddress(name))
	settings := raft.DefaultConfig()
	settings.LocalID, settings.LogOutput = raft.ServerID(name), io.Discard
	settings.SnapshotInterval = time.Hour
	fsm := machine(dir, settings, log, snapshots)
	one := raft.Configuration{Servers: []raft.Server{{ID: settings.LocalID, Address: transport.LocalAddr()}}}
	if err := raft.BootstrapCluster(settings, log, log, snapshots, transport, one); err != nil {
		b.Fatal(err)
	}
	r, err := raft.NewRaft(settings, fsm, log, log, snapshots, transport)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := errors.Join(r.Shutdown().Error(), log.Close()); err != nil {
			b.Error(err)
		}
	})
	<-r.LeaderCh()
	return r
}

// side is one of two that are compared: do sends a request of one of the clients.
type side struct {
	do   func(client, number int, payload []byte) error
	took []time.Duration // of each turn
	sent int
}

// run has the clients send one request after the other, so many each.
func (s *side) run(b *testing.B, clients, each int) {
	b.Helper()
	begin := time.Now()
	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			for n := range each {
				number := s.sent/clients + n + 1
				payload := fmt.Appendf(nil, "%03d %d %0100d", (client*each+n)%1000, client, number)
				if err := s.do(client, number, payload); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	s.took = append(s.took, time.Since(begin))
	s.sent += clients * each
}

// BenchmarkOverRaft is a request from a client's call to its reply, over a log that is synced, with raftonce and
// without. Both take short turns; a figure is the median of the turns, and ratio is the time with raftonce divided by
// the time without it.
func BenchmarkOverRaft(b *testing.B) {
	c := session.Config{Name: "bench", Lease: time.Hour}
	once := func(b *testing.B, r *raft.Raft, fsm raftonce.StateMachine, clients int) func(client, number int, payload []byte) error {
		b.Helper()
		node := raftonce.NewNode(r, fsm, nil)
		for i := range clients {
			if a, err := node.Apply(&session.Command{Op: session.Register, Nonce: session.Nonce{byte(i)}}, 0); err != nil || a.Err != 0 {
				b.Fatal(a.Err, err)
			}
		}
		return func(client, number int, payload []byte) error {
			a, err := node.Apply(&session.Command{
				Op: session.Request, Session: session.ID(client + 1), Nonce: session.Nonce{byte(client)}, //nolint:gosec // small
				Number: uint64(number), Mark: uint64(number - 1), Payload: payload, //nolint:gosec // small
			}, 0)
			return errors.Join(err, a.Err.Or())
		}
	}
	without := func(r *raft.Raft) func(client, number int, payload []byte) error {
		return func(_, _ int, payload []byte) error { return r.Apply(payload, 0).Error() }
	}
	bolt := func(b *testing.B, noSync bool, clients int) [2]*side {
		b.Helper()
		o := &bbolt.Options{NoSync: noSync, FreelistType: bbolt.FreelistMapType, InitialMmapSize: 1 << 30}
		plain := alone(b, "bare", func(dir string, _ *raft.Config, _ raft.LogStore, _ raft.SnapshotStore) raft.FSM {
			db, err := bbolt.Open(filepath.Join(dir, "state"), 0o600, o)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = db.Close() })
			return bare{db: db}
		})
		var fsm *raftonce.DiskFSM
		r := alone(b, "raftonce", func(dir string, settings *raft.Config, log raft.LogStore, snapshots raft.SnapshotStore) raft.FSM {
			var err error
			if fsm, err = raftonce.OpenDisk(filepath.Join(dir, "state"), add, c, &raftonce.DiskOptions{Bolt: o}); err != nil {
				b.Fatal(err)
			}
			if err := fsm.Resume(settings, log, snapshots); err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = fsm.Close() })
			return fsm
		})
		return [2]*side{{do: without(plain)}, {do: once(b, r, fsm, clients)}}
	}
	for _, kind := range []struct {
		name string
		open func(b *testing.B, clients int) [2]*side
	}{
		{"memory", func(b *testing.B, clients int) [2]*side {
			b.Helper()
			plain := alone(b, "bare", func(string, *raft.Config, raft.LogStore, raft.SnapshotStore) raft.FSM {
				return &sums{accounts: map[string][]byte{}}
			})
			fsm, err := raftonce.NewFSM(&sums{accounts: map[string][]byte{}}, c, nil)
			if err != nil {
				b.Fatal(err)
			}
			r := alone(b, "raftonce", func(string, *raft.Config, raft.LogStore, raft.SnapshotStore) raft.FSM { return fsm })
			return [2]*side{{do: without(plain)}, {do: once(b, r, fsm, clients)}}
		}},
		{"disk", func(b *testing.B, clients int) [2]*side { b.Helper(); return bolt(b, false, clients) }},
		{"disk-nosync", func(b *testing.B, clients int) [2]*side { b.Helper(); return bolt(b, true, clients) }},
	} {
		for _, clients := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/clients=%d", kind.name, clients), func(b *testing.B) {
				sides := kind.open(b, clients)
				each := max(10, 100/clients)
				for _, s := range sides { // warm
					s.run(b, clients, each)
					s.took = nil
				}
				var ratios []float64
				for i := 0; b.Loop(); i++ {
					for k := range sides {
						sides[(i+k)%2].run(b, clients, each)
					}
					ratios = append(ratios, float64(sides[1].took[i])/float64(sides[0].took[i]))
				}
				slices.Sort(ratios)
				for k, name := range []string{"bare", "once"} {
					slices.Sort(sides[k].took)
					b.ReportMetric(float64(sides[k].took[len(ratios)/2].Microseconds())/float64(clients*each), name+"-µs/request")
				}
				b.ReportMetric(ratios[len(ratios)/2], "ratio")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
