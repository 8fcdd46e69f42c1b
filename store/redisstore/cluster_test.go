package redisstore_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/drivertest"
	"github.com/everonce/everonce/internal/testing/testserver"
	"github.com/everonce/everonce/store/redisstore"
)

// startCluster starts three masters that have a third of the slots each. No replica takes over from a silent master,
// because all masters are silent at times on a busy machine: the others would only refuse to answer.
func startCluster(t *testing.T) []*process {
	t.Helper()
	nodes := make([]*process, 3)
	var buses []string // the gossip's ports
	for i := range nodes {
		bus := testserver.FreePort(t)
		nodes[i] = startServer(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "600000", "--cluster-port", strconv.Itoa(bus))
		buses = append(buses, strconv.Itoa(bus))
		first, last := i*16384/len(nodes), (i+1)*16384/len(nodes)-1
		command(t, nodes[i].client(t), "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last))
		command(t, nodes[i].client(t), "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
	}
	for i, other := range nodes[1:] {
		command(t, nodes[0].client(t), "CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(other.port), buses[i+1])
	}
	for _, node := range nodes {
		client := node.client(t)
		for known := false; !known; {
			text, err := command(t, client, "CLUSTER", "INFO").ToString()
			noErr(t, err)
			info := redisstore.InfoOf(text)
			known = info["cluster_state"] == "ok" && info["cluster_slots_ok"] == "16384" && info["cluster_known_nodes"] == "3"
		}
	}
	return nodes
}

func clusterClient(t testing.TB, nodes []*process) rueidis.Client {
	t.Helper()
	opt := rueidis.ClientOption{DisableCache: true, ConnWriteTimeout: time.Minute}
	for _, n := range nodes {
		opt.InitAddress = append(opt.InitAddress, n.addr())
	}
	return dial(t, opt)
}

// TestConformanceCluster holds the store to the suite on a cluster: the parts of a record are in one slot, and lists,
// counts and deletions find what is on all nodes.
func TestConformanceCluster(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t)
	spread := newStore(t, clusterClient(t, nodes), &redisstore.Options{KeyPrefix: "spread:"})
	for i := range 30 {
		claimed(t, spread, everonce.Key{Scope: "spread", ID: strconv.Itoa(i)})
	}
	for i, n := range nodes {
		if size, err := command(t, n.client(t), "DBSIZE").ToInt64(); err != nil || size == 0 {
			t.Errorf("node %d of the cluster has %d of 30 records, %v", i, size, err)
		}
	}
	drivertest.Run(t, clusterFactory(clusterClient(t, nodes), clusterClient(t, nodes)), variant())
}

// A client that does not use the cluster's protocol, and asks the wrong node, gets MOVED: a failure, and no answer.
func TestMovedIsAFailure(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t)
	s := newStore(t, nodes[0].client(t), &redisstore.Options{})
	moved := 0
	for i := range 20 {
		res, err := s.Claim(t.Context(), claimOf(everonce.Key{Scope: "moved", ID: strconv.Itoa(i)}))
		switch {
		case err == nil:
			decided(t, res, err, driver.DecideClaimed)
		case !strings.Contains(err.Error(), "MOVED"):
			t.Errorf("Claim: %v, want MOVED", err)
		default:
			failures(t, map[string]error{"Claim": err}, "Claim")
			moved++
		}
	}
	if moved == 0 || moved == 20 {
		t.Errorf("%d of 20 keys had moved", moved)
	}
}

// While a slot moves from one node to another its records are answered by the one or the other, or not at all: never as
// absent, corrupt, without their result, or without their steps. A missing answer is the store's failure, which is
// tried again.
func TestASlotThatMoves(t *testing.T) {
	t.Parallel()
	for name, parts := range map[string][]string{"the result first": {":v", "", ":s"}, "the record first": {"", ":s", ":v"}, "the steps first": {":s", "", ":v"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testSlotThatMoves(t, parts)
		})
	}
}

func testSlotThatMoves(t *testing.T, parts []string) {
	nodes := startCluster(t)
	s := newStore(t, clusterClient(t, nodes), &redisstore.Options{})
	ctx := t.Context()
	done := claimed(t, s, testKey)
	_, err := s.SaveStep(ctx, stepOf(&done, "mail"))
	noErr(t, err)
	_, err = s.Complete(ctx, completionOf(&done, "v"))
	noErr(t, err)

	key := redisstore.KeyOf(s, done.ID)
	slot, err := command(t, nodes[0].client(t), "CLUSTER", "KEYSLOT", key).ToInt64()
	noErr(t, err)
	at := int(slot) * len(nodes) / 16384
	from, to := nodes[at], nodes[(at+1)%len(nodes)]
	if n, err := command(t, from.client(t), "CLUSTER", "COUNTKEYSINSLOT", strconv.FormatInt(slot, 10)).ToInt64(); err != nil || n != 3 {
		t.Fatalf("the record is not on node %d: %d parts, %v", at, n, err)
	}
	id := func(p *process) string {
		name, err := command(t, p.client(t), "CLUSTER", "MYID").ToString()
		noErr(t, err)
		return name
	}
	word := strconv.FormatInt(slot, 10)
	command(t, to.client(t), "CLUSTER", "SETSLOT", word, "IMPORTING", id(from))
	command(t, from.client(t), "CLUSTER", "SETSLOT", word, "MIGRATING", id(to))
	again := 0
	fails := func(name string, err error) {
		t.Helper()
		failures(t, map[string]error{name: err}, name)
		if !errors.Is(err, driver.ErrStore) || errors.Is(err, driver.ErrCorruptRecord) {
			t.Errorf("%s: %v, want ErrStore alone", name, err)
		}
		if strings.Contains(err.Error(), "TRYAGAIN") {
			again++
		}
	}
	look := func() {
		t.Helper()
		res, err := s.Claim(ctx, claimOf(testKey))
		if err != nil {
			fails("Claim", err)
		} else if got := decided(t, res, nil, driver.DecideReplay).Record; string(got.Result.Data) != "v" {
			t.Errorf("replayed %q, %v", got.Result.Data, got.Result.Kind)
		}
		read, err := s.Get(ctx, driver.GetRequest{ID: done.ID})
		switch {
		case err != nil:
			fails("Get", err)
		case !read.Found || string(read.Record.Result.Data) != "v" || len(read.Record.Steps) != 1:
			t.Errorf("read %v: %v with %d steps", read.Found, read.Record.Result.Kind, len(read.Record.Steps))
		}
	}
	look()
	for _, part := range parts {
		command(t, from.client(t), "MIGRATE", "127.0.0.1", strconv.Itoa(to.port), key+part, "0", "5000")
		look()
	}
	if again == 0 {
		t.Error("nothing was answered with TRYAGAIN: the test is blind")
	}
	for _, n := range []*process{to, from} {
		command(t, n.client(t), "CLUSTER", "SETSLOT", word, "NODE", id(to))
	}
	for deadline := time.Now().Add(time.Minute); ; { // until the client has learnt of it
		res, err := s.Claim(ctx, claimOf(testKey))
		if err == nil {
			decided(t, res, nil, driver.DecideReplay)
			break
		}
		if time.Now().After(deadline) || errors.Is(err, driver.ErrCorruptRecord) {
			t.Fatalf("after the move: %v", err)
		}
	}
}

// In a cluster, too, a record whose steps are gone is corrupt, and not a store that will answer later. While the steps
// are on their way to another node it is that.
func TestStepsThatAreMissingInACluster(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t)
	client := clusterClient(t, nodes)
	s := newStore(t, client, &redisstore.Options{})
	rec := claimed(t, s, testKey)
	_, err := s.SaveStep(t.Context(), stepOf(&rec, "mail"))
	noErr(t, err)
	noErr(t, client.Do(t.Context(), client.B().Del().Key(redisstore.KeyOf(s, rec.ID)+":s").Build()).Error())
	again := claimOf(testKey)
	again.Nonce = rec.Nonce
	if _, err := s.Claim(t.Context(), again); !errors.Is(err, driver.ErrCorruptRecord) {
		t.Errorf("Claim: %v, want a corrupt record", err)
	}
}

// In a cluster a write waits on the node that has its slot: here none of them has a replica.
func TestWritesWaitForReplicasInACluster(t *testing.T) {
	t.Parallel()
	client := clusterClient(t, startCluster(t))
	s := newStore(t, client, &redisstore.Options{Replicas: 1, WaitTimeout: 20 * time.Millisecond})
	for i := range 6 { // on all nodes
		rec := claimed(t, newStore(t, client, &redisstore.Options{}), everonce.Key{Scope: "waits", ID: strconv.Itoa(i)})
		_, errClaim := s.Claim(t.Context(), claimOf(everonce.Key{Scope: "new", ID: strconv.Itoa(i)}))
		_, errComplete := s.Complete(t.Context(), completionOf(&rec, "v"))
		_, errReplay := s.Claim(t.Context(), claimOf(everonce.Key{Scope: rec.Scope, ID: rec.Name}))
		for what, err := range map[string]error{"claim": errClaim, "completion": errComplete, "replay": errReplay, "identity": errOf(s.KeepIdentity(t.Context(), driver.KeepIdentityRequest{Check: [32]byte{1}}))} {
			if !errors.Is(err, driver.ErrStore) || !strings.Contains(err.Error(), "0 of 1 replicas") {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
}
