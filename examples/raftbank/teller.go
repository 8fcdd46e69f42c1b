package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/raftonce"
	"github.com/everonce/everonce/session"
)

const (
	lanes        = 4               // transfers that one teller has under way
	attemptLimit = time.Second     // of one attempt to reach a node
	patience     = 2 * time.Minute // of most calls
)

// teller is one client of the bank.
type teller struct {
	run   *run
	do    func(ctx context.Context, command []byte) ([]byte, error)
	close func(ctx context.Context) error

	unanswered sync.Map     // numbers of transfers that were sent, and got no answer
	retries    atomic.Int64 // of these
	at         atomic.Int64 // the node that bareDo takes to be the leader
}

func (r *run) newTeller(ctx context.Context) (*teller, error) {
	t := &teller{run: r, close: func(context.Context) error { return nil }}
	if r.Broken == noSessions {
		t.do = t.bareDo
		return t, nil
	}
	client, err := raftonce.Dial(ctx, r.network.doors, t.send, &raftonce.ClientOptions{AttemptTimeout: attemptLimit})
	if err != nil {
		return nil, err
	}
	t.do, t.close = client.Do, client.Close
	return t, nil
}

// send is the client's [raftonce.Transport].
func (t *teller) send(ctx context.Context, door string, command []byte) ([]byte, error) {
	c, err := session.ParseCommand(command)
	if err != nil {
		return nil, err
	}
	if _, again := t.unanswered.LoadAndDelete(c.Number); again && c.Op == session.Request {
		t.retries.Add(1)
	}
	code, text, err := post(ctx, door, "/commands", command)
	if err != nil && c.Op == session.Request {
		t.unanswered.Store(c.Number, true)
	}
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("%s answers %d: %s", door, code, text)
	}
	return text, err
}

// work transfers and reads until the queue ends.
func (t *teller) work(ctx context.Context, queue <-chan Transfer, random *rand.Rand) error {
	for transfer := range queue {
		limit := patience
		if random.IntN(8) == 0 { // some give up early, and do not know then
			limit = time.Millisecond << random.IntN(10)
		}
		if err := t.transfer(ctx, transfer, limit); err != nil {
			return err
		}
		if random.IntN(3) == 0 {
			if err := t.read(ctx, random.IntN(len(names))); err != nil {
				return err
			}
		}
	}
	return nil
}

// transfer makes a transfer, and records the reply.
func (t *teller) transfer(ctx context.Context, transfer Transfer, limit time.Duration) error {
	command, err := json.Marshal(transfer)
	if err != nil {
		return err
	}
	mine, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	e := entry{transfer: transfer, early: limit < patience, call: t.run.now()}
	answer, err := t.do(mine, command)
	e.end = t.run.now()
	_, failed := errors.AsType[*raftonce.FailedError](err)
	switch {
	case err == nil:
		e.told = done
		if e.position, err = strconv.Atoi(string(answer)); err != nil {
			return err
		}
	case failed:
		e.told = refused
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, everonce.ErrOutcomeUnknown):
		e.told = unknown
	case mine.Err() != nil:
		e.told = unsent
	default:
		return err
	}
	t.run.history.add(e)
	return nil
}

// read reads the books, of whatever node knows that it is the leader, and notes what it has read.
func (t *teller) read(ctx context.Context, first int) error {
	for i := first; ; i++ {
		e := entry{told: read, node: names[i%len(names)], call: t.run.now()}
		books, err := booksOf(ctx, t.run.network.doors[i%len(names)])
		if err == nil {
			e.end, e.balances, e.position = t.run.now(), books.Balances, len(books.Ledger)
			t.run.history.add(e)
			return nil
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}

func booksOf(ctx context.Context, address string) (b Books, err error) {
	text, err := get(ctx, address, "/books")
	if err != nil {
		return b, err
	}
	return b, json.Unmarshal(text, &b)
}

func get(ctx context.Context, address, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptLimit)
	defer cancel()
	code, text, err := ask(ctx, http.MethodGet, address, path, nil)
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("%s answers %d: %s", address, code, text)
	}
	return text, err
}

func post(ctx context.Context, address, path string, body []byte) (code int, text []byte, err error) {
	return ask(ctx, http.MethodPost, address, path, body)
}

// ask sends a request once.
func ask(ctx context.Context, method, address, path string, body []byte) (code int, text []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+address+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	text, err = io.ReadAll(res.Body)
	return res.StatusCode, text, errors.Join(err, res.Body.Close())
}

// pause sleeps, or returns why ctx has ended.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
