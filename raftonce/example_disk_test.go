package raftonce_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"

	"github.com/everonce/everonce/raftonce"
	"github.com/everonce/everonce/session"
)

// deposit is a state machine on disk: commands are amounts, and it answers the balance.
func deposit(tx *bbolt.Tx, payload []byte) ([]byte, error) {
	purse, err := tx.CreateBucketIfNotExists([]byte("purse"))
	if err != nil {
		return nil, err
	}
	balance, _ := strconv.Atoi(string(purse.Get([]byte("balance"))))
	amount, err := strconv.Atoi(string(payload))
	if err != nil || balance+amount < 0 {
		return nil, errors.New("refused") // a result like any other, and what was written is undone
	}
	result := []byte(strconv.Itoa(balance + amount))
	return result, purse.Put([]byte("balance"), result)
}

// diskNode is a node with all that it keeps in a folder.
type diskNode struct {
	*raftonce.Node
	fsm  *raftonce.DiskFSM
	raft *raft.Raft
	log  *raftboltdb.BoltStore
}

// startDisk starts a node in a folder, for the first time or again.
func startDisk(dir string) (*diskNode, error) {
	log, err := raftboltdb.NewBoltStore(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	snapshots, err := raft.NewFileSnapshotStore(dir, 2, io.Discard)
	if err != nil {
		return nil, err
	}
	fsm, err := raftonce.OpenDisk(filepath.Join(dir, "state"), deposit, session.Config{Name: "purse", Lease: time.Minute}, nil)
	if err != nil {
		return nil, err
	}
	config := raft.DefaultConfig()
	config.LocalID = "a"
	config.LogOutput = io.Discard
	config.HeartbeatTimeout, config.ElectionTimeout, config.LeaderLeaseTimeout = 50*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond
	if err := fsm.Resume(config, log, snapshots); err != nil {
		return nil, err
	}
	address, transport := raft.NewInmemTransport("a")
	servers := raft.Configuration{Servers: []raft.Server{{ID: config.LocalID, Address: address}}}
	if err := raft.BootstrapCluster(config, log, log, snapshots, transport, servers); err != nil && !errors.Is(err, raft.ErrCantBootstrap) {
		return nil, err
	}
	r, err := raft.NewRaft(config, fsm, log, log, snapshots, transport)
	if err != nil {
		return nil, err
	}
	return &diskNode{raftonce.NewNode(r, fsm, nil), fsm, r, log}, nil
}

func (n *diskNode) stop() error {
	return errors.Join(n.raft.Shutdown().Error(), n.fsm.Close(), n.log.Close()) // in this order
}

// A node is stopped while its answer is on the way, and starts again with its files. The client sends again, and the
// amount is added once.
func ExampleOpenDisk() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "purse")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	node, err := startDisk(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	restart := false
	transport := func(_ context.Context, _ string, command []byte) ([]byte, error) {
		reply := node.Handle("alice", command, time.Second)
		if restart {
			restart = false
			if err := node.stop(); err != nil {
				return nil, err
			}
			if node, err = startDisk(dir); err != nil {
				return nil, err
			}
			return nil, errors.New("the connection was reset")
		}
		return reply, nil
	}
	client, err := raftonce.Dial(ctx, []string{"a"}, transport, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	restart = true
	balance, err := client.Do(ctx, []byte("10"))
	fmt.Println(string(balance), err)

	_ = node.fsm.View(func(tx *bbolt.Tx) error {
		fmt.Println("on disk:", string(tx.Bucket([]byte("purse")).Get([]byte("balance"))))
		return nil
	})
	if err := node.stop(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 10 <nil>
	// on disk: 10
}

// Commits do not wait for the disk: raft's log does. After a crash raft fills an empty database.
func ExampleDiskOptions() {
	dir, err := os.MkdirTemp("", "purse")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	opts := &raftonce.DiskOptions{Bolt: &bbolt.Options{NoSync: true}}
	fsm, err := raftonce.OpenDisk(dir, deposit, session.Config{Name: "purse", Lease: time.Minute}, opts)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(fsm.Sessions(), fsm.Lease(), fsm.Close())
	// Output: 0 1m0s <nil>
}
