package raftonce_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/everonce/everonce/raftonce"
	"github.com/everonce/everonce/session"
)

// purse is a state machine: commands are amounts, and it answers the balance.
type purse struct {
	mu      sync.Mutex
	balance int
}

func (p *purse) Apply(log *raft.Log) any {
	p.mu.Lock()
	defer p.mu.Unlock()
	amount, err := strconv.Atoi(string(log.Data))
	if err != nil || p.balance+amount < 0 {
		return errors.New("refused") // a result like any other: it is kept, and replayed
	}
	p.balance += amount
	return strconv.Itoa(p.balance)
}

func (p *purse) read() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.balance
}

func (p *purse) Snapshot() (raft.FSMSnapshot, error) { return saved(p.read()), nil }

func (p *purse) Restore(from io.ReadCloser) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return json.NewDecoder(from).Decode(&p.balance)
}

type saved int

func (s saved) Persist(sink raft.SnapshotSink) error {
	if err := json.NewEncoder(sink).Encode(s); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

func (saved) Release() {}

// start starts a node. Stores and transport are raft's for tests: a real node uses raft-boltdb and TCP.
func start(ctx context.Context, machine raft.FSM) (*raftonce.Node, *raft.Raft, error) {
	fsm, err := raftonce.NewFSM(machine, session.Config{Name: "purse", Lease: time.Minute}, nil)
	if err != nil {
		return nil, nil, err
	}
	config := raft.DefaultConfig()
	config.LocalID = "a"
	config.LogOutput = io.Discard
	config.HeartbeatTimeout, config.ElectionTimeout, config.LeaderLeaseTimeout = 50*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond
	store, snapshots := raft.NewInmemStore(), raft.NewInmemSnapshotStore()
	address, transport := raft.NewInmemTransport("a")
	servers := raft.Configuration{Servers: []raft.Server{{ID: config.LocalID, Address: address}}}
	if err := raft.BootstrapCluster(config, store, store, snapshots, transport, servers); err != nil {
		return nil, nil, err
	}
	r, err := raft.NewRaft(config, fsm, store, store, snapshots, transport)
	if err != nil {
		return nil, nil, err
	}
	node := raftonce.NewNode(r, fsm, nil)
	go node.Run(ctx)
	return node, r, nil
}

// Answers are lost on the way to the client, which sends again. Each amount is added once.
func ExampleClient_Do() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	node, r, err := start(ctx, &purse{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Shutdown()

	sent := 0
	transport := func(_ context.Context, _ string, command []byte) ([]byte, error) { // the application's RPC
		reply := node.Handle("alice", command, time.Second)
		if sent++; sent%2 == 0 {
			return nil, errors.New("the connection was reset")
		}
		return reply, nil
	}
	client, err := raftonce.Dial(ctx, []string{"a"}, transport, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, amount := range []string{"10", "5", "-100"} {
		balance, err := client.Do(ctx, []byte(amount))
		var refused *raftonce.FailedError
		switch {
		case errors.As(err, &refused):
			fmt.Println(amount, "was refused")
		case err != nil: // with everonce.ErrOutcomeUnknown: it may have taken effect
			fmt.Println(err)
		default:
			fmt.Println(amount, "makes", string(balance))
		}
	}
	// Output:
	// 10 makes 10
	// 5 makes 15
	// -100 was refused
}

// After Read, the state machine has the effect of every request that was answered before.
func ExampleNode_Read() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	machine := &purse{balance: 7}
	node, r, err := start(ctx, machine)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Shutdown()
	<-r.LeaderCh()

	balance := func() (int, error) {
		if err := node.Read(time.Second); err != nil {
			return 0, err // ask the leader (raftonce.NotLeaderError), or once more
		}
		return machine.read(), nil
	}
	fmt.Println(balance())
	// Output: 7 <nil>
}
