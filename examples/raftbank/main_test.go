package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/everonce/everonce/raftonce"
	"github.com/everonce/everonce/session"
)

// TestMain lets the test's own program be the nodes.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == nodeFlag {
		main()
		return
	}
	os.Exit(m.Run())
}

// ran runs the program, and returns its report and its exit code.
func ran(t *testing.T, args ...string) (rep Report, code int, said string) {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "said")) // the nodes write to it too
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() //nolint:errcheck // it is only read
	var out bytes.Buffer
	code, err = perform(t.Context(), append([]string{"-json", "-v"}, args...), &out, file)
	told, readErr := os.ReadFile(file.Name())
	if err := errors.Join(err, readErr); err != nil {
		t.Fatalf("%v\n%s", err, told)
	}
	if rep, err = decoded(out.String()); err != nil {
		t.Fatalf("%v\n%s%s", err, &out, told)
	}
	return rep, code, string(told)
}

// decoded reads a report, which is one JSON object with just these members.
func decoded(text string) (rep Report, err error) {
	var members map[string]any
	if err := json.Unmarshal([]byte(text), &members); err != nil {
		return rep, err
	}
	for _, name := range strings.Fields("transfers leader_changes kills retries doubled lost linearizable seconds") {
		if _, ok := members[name]; !ok {
			return rep, errors.New("there is no " + name)
		}
		delete(members, name)
	}
	if len(members) > 0 {
		return rep, errors.New("there is more than it should be")
	}
	return rep, json.Unmarshal([]byte(text), &rep)
}

// Nodes are killed, paused and cut off, and answers get lost: each transfer takes effect once, no answered transfer is
// lost, and the history is linearizable.
func TestRaftbank(t *testing.T) {
	t.Parallel()
	transfers, faults := 600, len(faults)
	if !testing.Short() {
		transfers, faults = 20_000, 20*faults
	}
	rep, code, said := ran(t, "-n", strconv.Itoa(transfers), "-faults", strconv.Itoa(faults), "-within", "30m")
	if code != 0 || rep.Transfers != transfers || rep.Kills != faults/3 || rep.LeaderChanges == 0 || rep.Retries == 0 {
		t.Errorf("exit code %d: %+v\n%s", code, rep, said)
	}
}

// Each mistake costs something: else TestRaftbank would be blind.
func TestMistakes(t *testing.T) {
	t.Parallel()
	for m, doubles := range map[mistake]bool{noSessions: true, localReads: false} {
		t.Run(string(m), func(t *testing.T) {
			t.Parallel()
			// The cost of a mistake is a matter of chance: it depends on the calls in progress when a node is lost.
			for range 3 {
				rep, code, said := ran(t, "-n", "300", "-faults", "3", "-broken", string(m))
				if code == 0 || doubles && rep.Doubled == 0 {
					continue
				}
				if code != 1 || rep.Linearizable || (rep.Doubled > 0) != doubles {
					t.Errorf("exit code %d: %+v\n%s", code, rep, said)
				}
				return
			}
			t.Error("it cost nothing, three times")
		})
	}
}

// The audit tells each thing that may be wrong.
func TestCount(t *testing.T) {
	t.Parallel()
	all := []entry{{told: read}, {transfer: Transfer{ID: "a"}, told: done, position: 1}, {transfer: Transfer{ID: "b"}, told: unknown, early: true}}
	with := func(told knows) []entry {
		return append(all[:3:3], entry{transfer: Transfer{ID: "c"}, told: told, position: 2, early: told == unsent})
	}
	for name, tc := range map[string]struct {
		ledger        string
		entries       []entry
		doubled, lost int
		wrong         bool
	}{
		"all is well, the unknown did not happen":    {"a", all, 0, 0, false},
		"all is well, the unknown happened":          {"a b", all, 0, 0, false},
		"done twice":                                 {"a a", all, 1, 0, false},
		"the unknown happened twice":                 {"a b b", all, 1, 0, false},
		"it was lost":                                {"b", all, 0, 1, false},
		"it is not where the answer said":            {"b a", all, 0, 1, false},
		"refused when it came again":                 {"a c", with(refused), 1, 0, false},
		"refused":                                    {"a", with(refused), 0, 0, false},
		"not sent":                                   {"a", with(unsent), 0, 0, false},
		"it was not sent, they say, and took effect": {"a c", with(unsent), 0, 0, true},
		"it was never sent":                          {"a d", all, 0, 0, true},
		"the unknown was not given up early":         {"a", with(unknown), 0, 0, true},
	} {
		b := newBooks()
		b.Ledger = strings.Fields(tc.ledger)
		rep, err := b.count(tc.entries)
		if rep.Doubled != tc.doubled || rep.Lost != tc.lost || (err != nil) != tc.wrong {
			t.Errorf("%s: %+v, %v", name, rep, err)
		}
	}
	poorer := newBooks()
	poorer.Balances[0]--
	poorer.Ledger = []string{"a"}
	if _, err := poorer.count(all); err == nil {
		t.Error("missing money is not reported")
	}
}

// The checker finds a read that is stale, and an effect that was never requested; a call with an unknown outcome may
// have happened at any time.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	before, after, twice := newBooks().Balances, newBooks().Balances, newBooks().Balances
	after[0], after[1] = after[0]-7, after[1]+7
	twice[0], twice[1] = twice[0]-14, twice[1]+14
	move := Transfer{ID: "a", From: 0, To: 1, Cents: 7}
	stale, fresh := entry{told: read, balances: before, call: 2, end: 3}, entry{told: read, balances: after, position: 1, call: 2, end: 3}
	for name, tc := range map[string]struct {
		first, second entry
		ledger        string
		want          bool
	}{
		"read afterwards":                    {entry{told: done, transfer: move, position: 1, end: 1}, fresh, "a", true},
		"a stale read":                       {entry{told: done, transfer: move, position: 1, end: 1}, stale, "a", false},
		"read meanwhile":                     {entry{told: done, transfer: move, position: 1, end: 4}, stale, "a", true},
		"unknown, happened before the read":  {entry{told: unknown, transfer: move, end: 1}, fresh, "a", true},
		"unknown, happened after the read":   {entry{told: unknown, transfer: move, end: 1}, stale, "a", true},
		"unknown, and did not happen":        {entry{told: unknown, transfer: move, end: 1}, stale, "", true},
		"unknown, read, and did not happen":  {entry{told: unknown, transfer: move, end: 1}, fresh, "", false},
		"read before it was sent":            {entry{told: unknown, transfer: move, call: 4, end: 5}, fresh, "a", false},
		"not sent, and happened":             {entry{told: unsent, transfer: move, end: 1}, fresh, "a", false},
		"refused, though there was money":    {entry{told: refused, transfer: move, end: 1}, stale, "", false},
		"another position":                   {entry{told: done, transfer: move, position: 2, end: 1}, fresh, "a", false},
		"twice, and the read has the second": {entry{told: done, transfer: move, position: 1, end: 1}, entry{told: read, balances: twice, position: 2, call: 2, end: 3}, "a a", false},
	} {
		h := history{entries: []entry{tc.first, tc.second}}
		if got, err := h.linearizable(strings.Fields(tc.ledger)); got != tc.want || err != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		late := name == "a stale read" || name == "another position"
		if _, _, found := h.stale(); found != late {
			t.Errorf("%s: a call that came too late to be missed: %v", name, found)
		}
	}
}

// Nodes replicate without a pipeline.
func TestNoPipeline(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	ln, err := lc.Listen(t.Context(), "tcp", anywhere)
	if err != nil {
		t.Fatal(err)
	}
	at := nodeSettings{Name: "north", Peers: map[string]string{"north": ln.Addr().String()}}
	transport := newTransport(&ways{Listener: ln, nodeSettings: at}, hclog.NewNullLogger())
	if _, err := transport.AppendEntriesPipeline("north", "north"); !errors.Is(err, raft.ErrPipelineReplicationNotSupported) {
		t.Error(err)
	}
	if err := transport.(raft.WithClose).Close(); err != nil {
		t.Error(err)
	}
}

// stopper stops a run when something is done to a node.
type stopper struct {
	bytes.Buffer
	stop func()
}

func (s *stopper) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(" is ")) && bytes.Contains(b, []byte(" for ")) {
		s.stop()
	}
	return s.Buffer.Write(b)
}

// A run that fails tells what raft says of itself.
func TestStatsOfAFailure(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	said := &stopper{stop: cancel}
	if _, err := perform(ctx, []string{"-n", "100", "-faults", "1"}, io.Discard, said); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if n := strings.Count(said.String(), `"applied_index"`); n < 2 { // one may be down
		t.Errorf("%d nodes say how they are:\n%s", n, said)
	}
}

// Replicas with the same books are not equal, if their sessions are not.
func TestReplicaHasSessions(t *testing.T) {
	t.Parallel()
	n := &node{bank: &bank{books: newBooks()}}
	var err error
	if n.fsm, err = raftonce.NewFSM(n.bank, session.Config{Name: "bank", Lease: lease}, nil); err != nil {
		t.Fatal(err)
	}
	address, transport := raft.NewInmemTransport("north")
	store, snapshots, config := raft.NewInmemStore(), raft.NewInmemSnapshotStore(), raft.DefaultConfig()
	config.LocalID, config.LogOutput = "north", io.Discard
	alone := raft.Configuration{Servers: []raft.Server{{ID: "north", Address: address}}}
	if err := raft.BootstrapCluster(config, store, store, snapshots, transport, alone); err != nil {
		t.Fatal(err)
	}
	if n.raft, err = raft.NewRaft(config, n.fsm, store, store, snapshots, transport); err != nil {
		t.Fatal(err)
	}
	<-n.raft.LeaderCh()
	before, err := n.replica()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := raftonce.NewNode(n.raft, n.fsm, nil).Apply(&session.Command{Op: session.Register}, 0); err != nil {
		t.Fatal(err)
	}
	after, err := n.replica()
	if err != nil || bytes.Equal(before, after) {
		t.Errorf("with another session it is the same: %s, %v", after, err)
	}
	if err := n.raft.Shutdown().Error(); err != nil {
		t.Error(err)
	}
}

// Bad arguments fail, and nothing is started.
func TestArguments(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-broken", "luck"}, {"-n", "0"}, {"-clients", "0"}, {"-faults", "-1"}, {"more"}} {
		var said bytes.Buffer
		code, err := perform(t.Context(), args, &said, &said)
		if code != 2 || err == nil && said.Len() == 0 {
			t.Errorf("%v: exit code %d, %v", args, code, err)
		}
	}
}
