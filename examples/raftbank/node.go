package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"github.com/everonce/everonce/raftonce"
	"github.com/everonce/everonce/session"
)

// nodeFlag makes the program a node: it is how the program runs itself again.
const nodeFlag = "-node"

// names are the nodes', in raft too: where they are is the network's matter.
var names = []string{"north", "south", "west"}

// nodeSettings are the settings of a node, the first line of its input.
type nodeSettings struct {
	Name   string
	Folder string            // of its files
	Peers  map[string]string // where its ways to the others begin
	Doors  map[string]string // where clients reach each node
	Broken mistake
}

const (
	anywhere    = "127.0.0.1:0" // any free port that only this machine can reach
	lease       = time.Minute   // of a session
	appendLimit = time.Second   // how long a command may wait to be appended, and a read for the other nodes
	maxCommand  = 1 << 16
)

// node is one process of the bank.
type node struct {
	nodeSettings
	bank *bank
	fsm  *raftonce.FSM
	raft *raft.Raft
	once *raftonce.Node
}

// runNode serves until its input ends, as it does when the program is gone, or until it is told to end by a signal. Its
// first line of output is that it listens; each line after that is a term in which it leads.
func runNode(in io.Reader, out io.Writer) error {
	n := &node{bank: &bank{books: newBooks()}}
	dec := json.NewDecoder(in)
	if err := dec.Decode(&n.nodeSettings); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		io.Copy(io.Discard, in) //nolint:errcheck // wait for its end
	}()
	peers, err := net.FileListener(os.NewFile(3, "peers")) // the first two files that a process is given
	if err != nil {
		return err
	}
	clients, err := net.FileListener(os.NewFile(4, "clients"))
	if err != nil {
		return err
	}
	elected := make(chan bool, 8)
	if err := n.join(peers, elected); err != nil {
		return err
	}
	fmt.Fprintln(out, "listens")
	go func() {
		for won := range elected {
			if won {
				fmt.Fprintln(out, n.raft.CurrentTerm())
			}
		}
	}()
	go n.once.Run(ctx) //nolint:errcheck // nil: it ends with ctx
	srv := &http.Server{Handler: n.handler(), ReadHeaderTimeout: 5 * time.Second}
	go srv.Serve(clients) //nolint:errcheck // it ends with the process
	<-ctx.Done()
	return errors.Join(srv.Close(), n.raft.Shutdown().Error())
}

// join makes the node a member of the cluster, with what its files have.
func (n *node) join(peers net.Listener, elected chan<- bool) (err error) {
	if n.fsm, err = raftonce.NewFSM(n.bank, session.Config{Name: "bank", Lease: lease}, nil); err != nil {
		return err
	}
	logger := hclog.New(&hclog.LoggerOptions{Name: n.Name, Output: os.Stderr, Level: hclog.Warn})
	logs, err := raftboltdb.NewBoltStore(filepath.Join(n.Folder, "raft.db"))
	if err != nil {
		return err
	}
	snapshots, err := raft.NewFileSnapshotStoreWithLogger(n.Folder, 2, logger)
	if err != nil {
		return err
	}
	transport := newTransport(&ways{Listener: peers, nodeSettings: n.nodeSettings}, logger)

	config := raft.DefaultConfig()
	config.LocalID = raft.ServerID(n.Name)
	config.HeartbeatTimeout, config.ElectionTimeout, config.LeaderLeaseTimeout = 500*time.Millisecond, 500*time.Millisecond, 400*time.Millisecond
	config.CommitTimeout = 20 * time.Millisecond
	config.SnapshotInterval, config.SnapshotThreshold = 500*time.Millisecond, 100 // often, so that nodes begin with snapshots
	config.Logger, config.NotifyCh = logger, elected

	var members raft.Configuration
	for _, name := range names {
		members.Servers = append(members.Servers, raft.Server{ID: raft.ServerID(name), Address: raft.ServerAddress(name)})
	}
	if err := raft.BootstrapCluster(config, logs, logs, snapshots, transport, members); err != nil && !errors.Is(err, raft.ErrCantBootstrap) {
		return err
	}
	var machine raft.FSM = n.fsm
	var table raftonce.StateMachine = n.fsm
	if n.Broken == noSessions {
		machine, table = n.bank, unused{n.fsm}
	}
	if n.raft, err = raft.NewRaft(config, machine, logs, logs, snapshots, transport); err != nil {
		return err
	}
	n.once = raftonce.NewNode(n.raft, table, &raftonce.NodeOptions{
		Address: func(id raft.ServerID, _ raft.ServerAddress) string { return n.Doors[string(id)] },
	})
	return nil
}

// newTransport is without a pipeline: one that is given up may stand still for ever (hashicorp/raft#612).
func newTransport(stream raft.StreamLayer, logger hclog.Logger) raft.Transport {
	return raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: stream, MaxPool: 3, Timeout: time.Second, Logger: logger, MaxRPCsInFlight: 1,
	})
}

// ways are the node's connections to the others. It implements [raft.StreamLayer].
type ways struct {
	net.Listener
	nodeSettings nodeSettings
}

// Dial goes the way to a node.
func (w *ways) Dial(name raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	return (&net.Dialer{Timeout: timeout}).Dial("tcp", w.nodeSettings.Peers[string(name)])
}

// Addr is what the others know the node by.
func (w *ways) Addr() net.Addr { return name(w.nodeSettings.Name) }

type name string

func (name) Network() string  { return "tcp" }
func (n name) String() string { return string(n) }

func (n *node) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /commands", func(w http.ResponseWriter, r *http.Request) {
		command, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxCommand))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Write(n.once.Handle("tellers", command, appendLimit)) //nolint:errcheck // the teller asks again
	})
	mux.HandleFunc("POST /bare", n.bare)
	mux.HandleFunc("GET /books", func(w http.ResponseWriter, _ *http.Request) {
		if n.Broken != localReads {
			if err := n.once.Read(appendLimit); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
		}
		n.show(w)
	})
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) { // when something is wrong
		json.NewEncoder(w).Encode(n.raft.Stats()) //nolint:errcheck // the client asks again
	})
	mux.HandleFunc("GET /replica", func(w http.ResponseWriter, _ *http.Request) { // for the audit
		all, err := n.replica()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Write(all) //nolint:errcheck // the audit asks again
	})
	return mux
}

func (n *node) show(w io.Writer) {
	json.NewEncoder(w).Encode(n.bank.read()) //nolint:errcheck,errchkjson // the client asks again
}

// replica is the books, and the hash of books and sessions: replicas that have applied the same have the same.
func (n *node) replica() ([]byte, error) {
	s, err := n.fsm.Snapshot()
	if err != nil {
		return nil, err
	}
	defer s.Release()
	sum := sha256.New()
	if err := s.Persist(hashed{sum}); err != nil {
		return nil, err
	}
	return json.Marshal(struct {
		Books
		Sum []byte
	}{n.bank.read(), sum.Sum(nil)})
}

// hashed is a [raft.SnapshotSink] that keeps nothing.
type hashed struct{ io.Writer }

func (hashed) ID() string    { return "" }
func (hashed) Cancel() error { return nil }
func (hashed) Close() error  { return nil }
