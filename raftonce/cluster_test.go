package raftonce_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/everonce/everonce/raftonce"
	"github.com/everonce/everonce/session"
)

// ledger is a state machine that counts how often each payload was executed.
type ledger struct {
	mu    sync.Mutex
	times map[string]int
	gate  chan struct{} // if not nil, execution waits for its end
}

func newLedger() *ledger { return &ledger{times: map[string]int{}} }

func (l *ledger) Apply(log *raft.Log) any {
	l.mu.Lock()
	gate := l.gate
	l.mu.Unlock()
	if gate != nil {
		<-gate
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.times[string(log.Data)]++
	if bytes.HasPrefix(log.Data, []byte("refuse")) {
		return errors.New("refused")
	}
	return fmt.Appendf(nil, "%s %d", log.Data, len(l.times))
}

func (l *ledger) executed() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.times)
}

func (l *ledger) Snapshot() (raft.FSMSnapshot, error) { return frozen(l.executed()), nil }

func (l *ledger) Restore(from io.ReadCloser) error {
	times := map[string]int{}
	if err := json.NewDecoder(from).Decode(&times); err != nil {
		return err
	}
	l.mu.Lock()
	l.times = times
	l.mu.Unlock()
	return from.Close()
}

type frozen map[string]int

func (f frozen) Persist(sink raft.SnapshotSink) error {
	if err := json.NewEncoder(sink).Encode(f); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

func (frozen) Release() {}

// batching is a ledger that is a BatchingFSM.
type batching struct {
	*ledger
	most int // entries in one batch
}

func (b *batching) ApplyBatch(logs []*raft.Log) []any {
	b.most = max(b.most, len(logs))
	answers := make([]any, len(logs))
	for i, log := range logs {
		if log.Type == raft.LogCommand {
			answers[i] = b.Apply(log)
		}
	}
	return answers
}

const lease = 20 * time.Second

func config() session.Config { return session.Config{Name: "ledger", Lease: lease} }

// member is a node of a cluster.
type member struct {
	*raftonce.Node
	raft      *raft.Raft
	fsm       *raftonce.FSM
	ledger    *ledger
	address   raft.ServerAddress
	transport *raft.InmemTransport
}

// cluster is three nodes in memory. Its time is the bubble's.
type cluster struct {
	t       *testing.T
	members []*member
	stop    context.CancelFunc
	running sync.WaitGroup

	mu  sync.Mutex
	cut map[string]bool // the addresses that clients do not reach
}

// newCluster starts the nodes, whose followers catch up from the log.
func newCluster(t *testing.T) *cluster { return startCluster(t, 10_000, nil) }

// startCluster starts the nodes. A node that lags by more than trailing entries behind a snapshot gets the snapshot. If
// planted is not nil, it puts a fault between raft and the state machine.
func startCluster(t *testing.T, trailing uint64, planted func(*raftonce.FSM) raft.FSM) *cluster {
	t.Helper()
	return startClusterOver(t, trailing, planted, func(m *member, logs raft.LogStore) (raft.Transport, raft.LogStore) { return m.transport, logs })
}

// startClusterOver starts the nodes over what between returns for each.
func startClusterOver(t *testing.T, trailing uint64, planted func(*raftonce.FSM) raft.FSM,
	between func(*member, raft.LogStore) (raft.Transport, raft.LogStore),
) *cluster {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	c := &cluster{t: t, stop: stop, cut: map[string]bool{}}
	var servers []raft.Server
	for i := range 3 {
		address, transport := raft.NewInmemTransport(raft.ServerAddress(fmt.Sprint("node", i)))
		l := newLedger()
		var inner raft.FSM = l
		if i == 1 { // the nodes have different batches
			inner = &batching{ledger: l}
		}
		fsm, err := raftonce.NewFSM(inner, config(), nil)
		if err != nil {
			t.Fatal(err)
		}
		c.members = append(c.members, &member{fsm: fsm, ledger: l, address: address, transport: transport})
		servers = append(servers, raft.Server{ID: raft.ServerID("id-" + string(address)), Address: address})
	}
	for i, m := range c.members {
		for _, other := range c.members {
			m.transport.Connect(other.address, other.transport)
		}
		settings := raft.DefaultConfig()
		settings.LocalID = servers[i].ID
		settings.LogOutput = io.Discard
		settings.TrailingLogs = trailing
		settings.SnapshotInterval = time.Hour // only when a test says so
		store := raft.NewInmemStore()
		var fsm raft.FSM = m.fsm
		if planted != nil {
			fsm = planted(m.fsm)
		}
		snapshots := raft.NewInmemSnapshotStore()
		if err := raft.BootstrapCluster(settings, store, store, snapshots, m.transport, raft.Configuration{Servers: servers}); err != nil {
			t.Fatal(err)
		}
		var err error
		transport, logs := between(m, store)
		if m.raft, err = raft.NewRaft(settings, fsm, logs, store, snapshots, transport); err != nil {
			t.Fatal(err)
		}
		m.Node = raftonce.NewNode(m.raft, m.fsm, nil)
		c.running.Go(func() { m.Run(ctx) })
	}
	return c
}

func (c *cluster) close() {
	c.stop()
	c.running.Wait()
	for _, m := range c.members {
		if err := m.raft.Shutdown().Error(); err != nil {
			c.t.Error(err)
		}
		if err := m.transport.Close(); err != nil {
			c.t.Error(err)
		}
	}
}

// leader waits for a leader, which all that are not cut off agree on.
func (c *cluster) leader() *member {
	c.t.Helper()
	for range 1000 {
		for _, m := range c.members {
			if !c.isCut(string(m.address)) && m.raft.State() == raft.Leader && m.raft.VerifyLeader().Error() == nil {
				return m
			}
		}
		time.Sleep(50 * time.Millisecond) // of the bubble's clock
	}
	c.t.Fatal("there is no leader")
	return nil
}

func (c *cluster) isCut(address string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cut[address]
}

// isolate cuts a node off from the others, and from clients; join ends that.
func (c *cluster) isolate(m *member) {
	c.mu.Lock()
	c.cut[string(m.address)] = true
	c.mu.Unlock()
	for _, other := range c.members {
		if other != m {
			m.transport.Disconnect(other.address)
			other.transport.Disconnect(m.address)
		}
	}
}

func (c *cluster) join(m *member) {
	c.mu.Lock()
	c.cut[string(m.address)] = false
	c.mu.Unlock()
	for _, other := range c.members {
		if !c.isCut(string(other.address)) {
			m.transport.Connect(other.address, other.transport)
			other.transport.Connect(m.address, m.transport)
		}
	}
}

// transfer makes a node the leader.
func (c *cluster) transfer(to *member) {
	c.t.Helper()
	for range 100 {
		from := c.leader()
		if from == to {
			return
		}
		_ = from.raft.LeadershipTransferToServer(raft.ServerID("id-"+string(to.address)), to.address).Error()
	}
	c.t.Fatalf("%s does not become the leader", to.address)
}

func (c *cluster) addresses() (all []string) {
	for _, m := range c.members {
		all = append(all, string(m.address))
	}
	return all
}

var errCut = errors.New("connection refused")

// send is a transport that loses nothing.
func (c *cluster) send(ctx context.Context, address string, command []byte) ([]byte, error) {
	for _, m := range c.members {
		if string(m.address) != address || c.isCut(address) {
			continue
		}
		reply := make(chan []byte, 1)
		c.running.Go(func() { reply <- m.Handle("tester", command, time.Second) })
		select {
		case b := <-reply:
			return b, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return nil, errCut
}

// client registers a client, whose session ends with the test.
func (c *cluster) client(send raftonce.Transport) *raftonce.Client {
	c.t.Helper()
	client, err := raftonce.Dial(c.t.Context(), c.addresses(), send, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	return client
}

// settle waits until all nodes have applied the same, and checks that their snapshots are equal.
func (c *cluster) settle() map[string]int {
	c.t.Helper()
	leader := c.leader()
	if err := leader.raft.Barrier(0).Error(); err != nil {
		c.t.Fatal(err)
	}
	var differs []raft.ServerAddress
	for range 300 { // a node that was cut off comes back slowly
		time.Sleep(100 * time.Millisecond)
		want := image(c.t, leader.fsm)
		differs = nil
		for _, m := range c.members {
			if !bytes.Equal(image(c.t, m.fsm), want) {
				differs = append(differs, m.address)
			}
		}
		if differs == nil {
			break
		}
	}
	if differs != nil {
		c.t.Errorf("the snapshots of %v differ from the snapshot of %s", differs, leader.address)
	}
	return leader.ledger.executed()
}

// image is the snapshot of a state machine.
func image(t *testing.T, fsm raft.FSM) []byte {
	t.Helper()
	s, err := fsm.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	var b sink
	if err := s.Persist(&b); err != nil {
		t.Fatal(err)
	}
	if !b.closed {
		t.Error("the sink was not closed")
	}
	return b.Bytes()
}

type sink struct {
	bytes.Buffer
	closed, canceled bool
}

func (*sink) ID() string      { return "sink" }
func (s *sink) Close() error  { s.closed = true; return nil }
func (s *sink) Cancel() error { s.canceled = true; return nil }
