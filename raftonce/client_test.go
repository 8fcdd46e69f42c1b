package raftonce_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/raftonce"
	"github.com/everonce/everonce/session"
)

// TestOnceUnderLeaderChanges: clients send pipelined requests over a network that loses answers and delivers copies
// late, while leaders are changed and cut off and snapshots taken. Each request takes effect once, and all replicas
// agree.
func TestOnceUnderLeaderChanges(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { onceUnderLeaderChanges(t, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

func onceUnderLeaderChanges(t *testing.T, random *rand.Rand) {
	const clients, lanes, each = 3, 4, 12
	c := newCluster(t)
	defer c.close()
	var copies atomic.Int64
	send := func(ctx context.Context, address string, command []byte) ([]byte, error) {
		b, err := c.send(ctx, address, command)
		switch rand.N(5) {
		case 0:
			return nil, errors.New("the answer was lost")
		case 1:
			c.running.Go(func() {
				time.Sleep(rand.N(3 * time.Second))
				for _, m := range c.members { // whichever member is the leader by then
					m.Handle("tester", command, time.Second)
				}
				copies.Add(1)
			})
		}
		return b, err
	}
	ctx, cancel := context.WithCancel(t.Context())
	var chaos, work sync.WaitGroup
	changes := 0
	chaos.Go(func() {
		for ctx.Err() == nil {
			time.Sleep(200*time.Millisecond + time.Duration(random.Int64N(int64(500*time.Millisecond))))
			leader := c.leader()
			switch random.IntN(3) {
			case 0:
				_ = leader.raft.LeadershipTransfer().Error()
				changes++
			case 1:
				c.isolate(leader)
				time.Sleep(4 * time.Second)
				c.join(leader)
				changes++
			case 2:
				_ = c.members[random.IntN(3)].raft.Snapshot().Error()
			}
		}
	})
	for i := range clients {
		client := c.client(send)
		var calls sync.WaitGroup
		for lane := range lanes {
			calls.Go(func() {
				for n := range each {
					payload := fmt.Sprintf("%d-%d-%d", i, lane, n)
					if b, err := client.Do(ctx, []byte(payload)); err != nil || string(b[:len(payload)]) != payload {
						t.Errorf("%s is answered %q, %v", payload, b, err)
					}
					time.Sleep(rand.N(time.Second))
				}
			})
		}
		work.Go(func() {
			calls.Wait()
			if err := client.Close(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	cancel()
	chaos.Wait()
	time.Sleep(4 * time.Second) // the last copies
	got := c.settle()
	for payload, times := range got {
		if times != 1 {
			t.Errorf("%s was executed %d times", payload, times)
		}
	}
	if len(got) != clients*lanes*each {
		t.Errorf("%d requests were executed, want %d", len(got), clients*lanes*each)
	}
	if changes < 3 || copies.Load() == 0 {
		t.Errorf("%d changes of the leader, %d late copies: the test tests nothing", changes, copies.Load())
	}
}

// TestExpiredSession: when the session is gone, a call under way has an unknown outcome, and one that was not sent has
// not.
func TestExpiredSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		defer c.close()
		var cut, silent atomic.Bool
		client := c.client(func(ctx context.Context, address string, command []byte) ([]byte, error) {
			if cut.Load() {
				return nil, errCut
			}
			b, err := c.send(ctx, address, command)
			if silent.Load() {
				cut.Store(true)
				return nil, errors.New("the answer was lost")
			}
			return b, err
		})
		silent.Store(true)
		var call sync.WaitGroup
		call.Go(func() {
			_, err := client.Do(t.Context(), []byte("pay"))
			if !errors.Is(err, everonce.ErrOutcomeUnknown) || errors.Is(err, session.ErrSessionExpired) || !strings.Contains(err.Error(), "expired") {
				t.Errorf("the call under way: %v", err)
			}
		})
		time.Sleep(2 * lease)
		silent.Store(false)
		cut.Store(false)
		call.Wait()
		_, err := client.Do(t.Context(), []byte("pay"))
		if !errors.Is(err, session.ErrSessionExpired) || errors.Is(err, everonce.ErrOutcomeUnknown) {
			t.Errorf("the call after: %v", err)
		}
		if err := client.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if got := c.settle(); got["pay"] != 1 {
			t.Errorf("executed: %v", got)
		}
	})
}

// TestQuietClientKeepsItsSession, and the cluster forgets the answers that it has.
func TestQuietClientKeepsItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		defer c.close()
		client := c.client(c.send)
		before := len(image(t, c.leader().fsm))
		if _, err := client.Do(t.Context(), []byte("pay")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * lease)
		c.settle()
		for _, m := range c.members {
			if n := m.fsm.Sessions(); n != 1 {
				t.Errorf("%s has %d sessions", m.address, n)
			}
			if now := len(image(t, m.fsm)); now-before > 20 { // the ledger has the payload
				t.Errorf("the snapshot has grown by %d bytes: the answer is kept", now-before)
			}
		}
		if err := client.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := client.Do(t.Context(), []byte("pay")); !errors.Is(err, raftonce.ErrClosed) {
			t.Errorf("a closed client: %v", err)
		}
		if n := c.leader().fsm.Sessions(); n != 0 {
			t.Errorf("%d sessions after Close", n)
		}
	})
}

// TestRenewalOfAShortLease: two of three nodes take what is sent and answer nothing, and the session lives.
func TestRenewalOfAShortLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const short = 4 * time.Second
		one := startAlone(t, session.Config{Lease: short})
		var hole atomic.Bool
		client, err := raftonce.Dial(t.Context(), []string{"a", "b", "c"}, func(ctx context.Context, address string, command []byte) ([]byte, error) {
			switch {
			case address == "c":
				return one.Handle("tester", command, time.Second), nil
			case hole.Load():
				<-ctx.Done()
			}
			return nil, errCut
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		client.Believe("a")
		hole.Store(true)
		time.Sleep(5 * short)
		if _, err := client.Do(t.Context(), []byte("pay")); err != nil {
			t.Error(err)
		}
		if err := client.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// startAlone starts a node that is its whole cluster.
func startAlone(t *testing.T, c session.Config) *raftonce.Node {
	t.Helper()
	address, transport := raft.NewInmemTransport("c")
	fsm := newFSM(t, newLedger(), c)
	settings := raft.DefaultConfig()
	settings.LocalID, settings.LogOutput = "c", io.Discard
	store, snapshots := raft.NewInmemStore(), raft.NewInmemSnapshotStore()
	servers := raft.Configuration{Servers: []raft.Server{{ID: "c", Address: address}}}
	if err := raft.BootstrapCluster(settings, store, store, snapshots, transport, servers); err != nil {
		t.Fatal(err)
	}
	r, err := raft.NewRaft(settings, fsm, store, store, snapshots, transport)
	if err != nil {
		t.Fatal(err)
	}
	node := raftonce.NewNode(r, fsm, nil)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { node.Run(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
		if err := r.Shutdown().Error(); err != nil {
			t.Error(err)
		}
	})
	return node
}

// TestCallGivenUp: what its caller gave up is not executed any more, soon after no earlier call is under way; or once
// the client has sent something else by then, or has closed. Until then a copy may come, whatever was read.
func TestCallGivenUp(t *testing.T) {
	for name, tc := range map[string]givenUp{
		"nothing follows":                          {},
		"nothing follows, an earlier is under way": {earlier: true, want: 1},
		"nothing follows, an earlier was":          {earlier: true, ends: true},
		"renewals are lost":                        {quiet: true, want: 1},
		"a call follows":                           {quiet: true, next: true},
		"a call follows, an earlier is under way":  {quiet: true, earlier: true, next: true, want: 1},
		"it is closed":                             {quiet: true, closed: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testCallGivenUp(t, tc) })
		})
	}
}

type givenUp struct {
	earlier, ends       bool // a call that began earlier is under way, or was
	quiet, next, closed bool // renewals are lost, another call follows, the client is closed
	want                int  // executions of the copy that comes late
}

func testCallGivenUp(t *testing.T, tc givenUp) {
	c := newCluster(t)
	defer c.close()
	copies := make(chan []byte, 1)
	client := c.client(func(ctx context.Context, address string, command []byte) ([]byte, error) {
		p, err := session.ParseCommand(command)
		switch {
		case err != nil || tc.quiet && p.Op == session.KeepAlive:
			return nil, errCut
		case bytes.Contains(command, []byte("given up")):
			copies <- command
			fallthrough
		case bytes.Contains(command, []byte("earlier")):
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return c.send(ctx, address, command)
	})
	var before sync.WaitGroup
	defer before.Wait()
	long, end := context.WithCancel(t.Context())
	defer end()
	if tc.earlier {
		before.Go(func() {
			if _, err := client.Do(long, []byte("earlier")); !errors.Is(err, everonce.ErrOutcomeUnknown) {
				t.Errorf("the earlier call: %v", err)
			}
		})
		synctest.Wait()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := client.Do(ctx, []byte("given up"))
	if !errors.Is(err, everonce.ErrOutcomeUnknown) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a call given up: %v", err)
	}
	if tc.next {
		if _, err := client.Do(t.Context(), []byte("next")); err != nil {
			t.Fatal(err)
		}
	}
	if tc.ends {
		end()
	}
	time.Sleep(time.Second) // less than until the next renewal
	if tc.closed {
		if err := client.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	leader := c.leader()
	if err := leader.Read(time.Second); err != nil || leader.ledger.executed()["given up"] != 0 {
		t.Errorf("it was read: %v, %v", leader.ledger.executed(), err)
	}
	leader.Handle("tester", <-copies, time.Second)
	end()
	if err := client.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if got := c.settle(); got["given up"] != tc.want {
		t.Errorf("executed: %v", got)
	}
}

// TestManyCallsGivenUp: a client that gave up more calls than the window has, while no node was reached, goes on.
func TestManyCallsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		defer c.close()
		var cut atomic.Bool
		client := c.client(func(ctx context.Context, address string, command []byte) ([]byte, error) {
			if cut.Load() {
				return nil, errCut
			}
			return c.send(ctx, address, command)
		})
		cut.Store(true)
		for range 300 {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			if _, err := client.Do(ctx, []byte("x")); err == nil {
				t.Fatal("answered")
			}
			cancel()
		}
		cut.Store(false)
		time.Sleep(3 * lease) // only renewals
		if b, err := client.Do(t.Context(), []byte("pay")); err != nil || string(b) != "pay 1" {
			t.Errorf("%q, %v", b, err)
		}
		if err := client.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestMoreCallsThanTheWindow: they wait for each other, in the client.
func TestMoreCallsThanTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		defer c.close()
		client := c.client(func(ctx context.Context, address string, command []byte) ([]byte, error) {
			time.Sleep(20 * time.Millisecond)
			return c.send(ctx, address, command)
		})
		before := c.leader().raft.LastIndex()
		var calls sync.WaitGroup
		for i := range 400 {
			calls.Go(func() {
				if _, err := client.Do(t.Context(), fmt.Append(nil, i)); err != nil {
					t.Error(err)
				}
			})
		}
		calls.Wait()
		if n := c.leader().raft.LastIndex() - before; n > 420 {
			t.Errorf("%d entries for 400 calls", n)
		}
		if err := client.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if got := c.settle(); len(got) != 400 {
			t.Errorf("%d were executed", len(got))
		}
	})
}

// TestNoClientWithoutCluster: it ends with its context, and says why.
func TestNoClientWithoutCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		html := func(context.Context, string, []byte) ([]byte, error) { return []byte("<html>"), nil }
		_, err := raftonce.Dial(ctx, []string{"a", "b"}, html, nil)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if _, err := raftonce.Dial(ctx, nil, html, nil); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// TestRenewalsOfManyClients are few entries of the log, and one that is refused is refused alone.
func TestRenewalsOfManyClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		defer c.close()
		leader := c.leader()
		const clients = 50
		var all []*raftonce.Client
		for range clients {
			all = append(all, c.client(c.send))
		}
		stranger := session.Command{Op: session.KeepAlive, Beats: []session.Beat{{Session: 1, Nonce: nonce}}} // with the wrong nonce
		command, err := stranger.AppendTo(nil)
		if err != nil {
			t.Fatal(err)
		}
		c.running.Go(func() {
			time.Sleep(lease / 3)
			leader.Handle("stranger", command, time.Second)
		})
		before := leader.raft.LastIndex()
		time.Sleep(2 * lease)
		if n := leader.raft.LastIndex() - before; n > 2*clients { // of 6 renewals of each, and some ticks
			t.Errorf("%d entries for the renewals of %d clients", n, clients)
		}
		if n := leader.fsm.Sessions(); n != clients {
			t.Errorf("%d sessions, want %d", n, clients)
		}
		for _, client := range all {
			if _, err := client.Do(t.Context(), []byte("pay")); err != nil {
				t.Error(err)
			}
			if err := client.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}
