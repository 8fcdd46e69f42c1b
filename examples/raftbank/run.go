package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// settings are what the flags say.
type settings struct {
	Transfers, Tellers, Faults int
	Seed                       uint64
	Broken                     mistake
	Log                        *log.Logger
	Said                       io.Writer // by the nodes
}

// run is one run.
type run struct {
	settings
	began     time.Time
	network   *network
	processes map[string]*process
	history   history
	kills     int

	mu    sync.Mutex
	terms map[uint64]string // who led in each
	first chan struct{}     // closed when there was a leader
}

func (r *run) now() int64 { return int64(time.Since(r.began)) }

// raftbank starts the nodes, has tellers transfer money while things are done to nodes, and audits.
func raftbank(ctx context.Context, s settings) (rep Report, err error) {
	r := &run{settings: s, began: time.Now(), processes: map[string]*process{}, terms: map[uint64]string{}, first: make(chan struct{})}
	folder, err := os.MkdirTemp("", "everonce-raftbank-")
	if err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	r.network, err = newNetwork(ctx)
	defer r.network.close()
	if err != nil {
		return rep, err
	}
	defer func() {
		var stats strings.Builder
		for _, p := range r.processes {
			stats.WriteString(r.stats(p))
		}
		var stopped error
		for _, p := range r.processes {
			stopped = errors.Join(stopped, p.stop())
		}
		if err = errors.Join(err, stopped); err != nil {
			r.Log.Print(stats.String())
		}
	}()
	if err := r.open(ctx, folder); err != nil {
		return rep, err
	}
	tellers, err := r.operate(ctx)
	if err != nil {
		return rep, err
	}
	books, err := r.settle(ctx) // while there are sessions
	retries := 0
	for _, t := range tellers {
		err = errors.Join(err, t.close(ctx))
		retries += int(t.retries.Load())
	}
	if err != nil {
		return rep, err
	}
	if rep, err = books.count(r.history.entries); err != nil {
		return rep, err
	}
	rep.Retries, rep.Kills, rep.LeaderChanges = retries, r.kills, r.leaderChanges()
	if rep.Linearizable, err = r.history.linearizable(books.Ledger); err != nil {
		return rep, err
	}
	if seen, missed, found := r.history.stale(); found {
		r.Log.Printf("from %v to %v %s was read, and had %d transfers; %d were known since %v",
			time.Duration(missed.call), time.Duration(missed.end), missed.node, missed.position, seen.position, time.Duration(seen.end))
	}
	rep.Seconds = time.Since(r.began).Seconds()
	return rep, err
}

// stats is what raft says of itself on a node, which may be down.
func (r *run) stats(p *process) string {
	ctx, cancel := context.WithTimeout(context.Background(), attemptLimit)
	defer cancel()
	text, err := get(ctx, r.network.front[p.Name].Listen, "/stats")
	if err != nil {
		return fmt.Sprintf("%s: %v\n", p.Name, err)
	}
	return fmt.Sprintf("%s: %s", p.Name, text)
}

// open starts the nodes, and waits until one of them leads.
func (r *run) open(ctx context.Context, folder string) error {
	doors := map[string]string{}
	for i, door := range r.network.doors {
		doors[names[i]] = door
	}
	for _, name := range names {
		p := &process{said: r.Said, leads: r.leads, sockets: r.network.sockets[name], nodeSettings: nodeSettings{
			Name: name, Folder: filepath.Join(folder, name), Peers: r.network.from(name), Doors: doors, Broken: r.Broken,
		}}
		r.processes[name] = p
		if err := errors.Join(os.Mkdir(p.Folder, 0o700), p.start(ctx)); err != nil {
			return err
		}
	}
	select {
	case <-r.first:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *run) leads(name string, term uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.terms) == 0 {
		close(r.first)
	}
	r.terms[term] = name
}

func (r *run) leaderChanges() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.terms) - 1
}

// leader is who led in the last term.
func (r *run) leader() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var last uint64
	for term := range r.terms {
		last = max(last, term)
	}
	return r.terms[last]
}

// operate has the tellers work off the transfers.
func (r *run) operate(ctx context.Context) (tellers []*teller, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for range r.Tellers {
		t, err := r.newTeller(ctx)
		if err != nil {
			return nil, err
		}
		tellers = append(tellers, t)
	}
	queue := make(chan Transfer) // without a buffer: a sent transfer has been received
	var working sync.WaitGroup
	for i := range r.Tellers * lanes {
		working.Go(func() {
			random := rand.New(rand.NewPCG(r.Seed, uint64(100+i))) //nolint:gosec // what to read, and when to give up
			if err := tellers[i/lanes].work(ctx, queue, random); err != nil {
				cancel(err)
			}
		})
	}
	err = r.feed(ctx, queue, transfersOf(r.Transfers, r.Seed))
	close(queue)
	working.Wait()
	return tellers, errors.Join(err, context.Cause(ctx))
}

// transfersOf are the transfers of a seed: now and then of more than there is.
func transfersOf(n int, seed uint64) (all []Transfer) {
	random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // no secret
	for i := range n {
		from := random.IntN(accounts)
		all = append(all, Transfer{
			ID: fmt.Sprintf("transfer-%05d", i), From: from, To: (from + 1 + random.IntN(accounts-1)) % accounts, Cents: 1 + random.Int64N(opening/2),
		})
	}
	return all
}

// settleLimit is how long replicas may take to become equal: raft pauses for up to ten seconds after failures.
const settleLimit = time.Minute

// settle returns the books, when all replicas have the same, and the same sessions.
func (r *run) settle(ctx context.Context) (books Books, err error) {
	for end := time.Now().Add(settleLimit); ; {
		var all [][]byte
		var err error
		for _, p := range r.processes {
			b, readErr := get(ctx, r.network.front[p.Name].Listen, "/replica")
			all, err = append(all, b), errors.Join(err, readErr)
		}
		same := err == nil && !slices.ContainsFunc(all, func(b []byte) bool { return !bytes.Equal(b, all[0]) })
		if same {
			return books, json.Unmarshal(all[0], &books)
		}
		if time.Now().After(end) {
			return books, errors.Join(fmt.Errorf("the replicas do not become equal: %s", bytes.Join(all, []byte("\n"))), err)
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return books, err
		}
	}
}
