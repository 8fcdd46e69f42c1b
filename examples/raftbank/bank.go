package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/hashicorp/raft"
)

const (
	accounts = 8
	opening  = 1000 // what each account has at first
)

// Transfer is the command of the state machine.
type Transfer struct {
	ID       string
	From, To int // accounts
	Cents    int64
}

// Books are the state: what the accounts have, and the IDs of the transfers, in the order in which they took effect.
type Books struct {
	Balances [accounts]int64
	Ledger   []string
}

// newBooks are the books before the first transfer.
func newBooks() (b Books) {
	for i := range b.Balances {
		b.Balances[i] = opening
	}
	return b
}

var errFunds = errors.New("insufficient funds")

// transfer moves money, and enters it into the ledger, as often as it is called.
func (b *Books) transfer(t Transfer) (position int, err error) {
	switch {
	case t.From < 0 || t.From >= accounts || t.To < 0 || t.To >= accounts || t.Cents < 1:
		return 0, errors.New("no such transfer")
	case b.Balances[t.From] < t.Cents:
		return 0, errFunds
	}
	b.Balances[t.From] -= t.Cents
	b.Balances[t.To] += t.Cents
	b.Ledger = append(b.Ledger, t.ID)
	return len(b.Ledger), nil
}

// bank is a [raft.FSM]. It knows nothing of sessions.
type bank struct {
	mu    sync.Mutex
	books Books
}

// Apply answers with the transfer's position in the ledger, or with an error.
func (b *bank) Apply(entry *raft.Log) any {
	var t Transfer
	if err := json.Unmarshal(entry.Data, &t); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	position, err := b.books.transfer(t)
	if err != nil {
		return err
	}
	return fmt.Append(nil, position)
}

func (b *bank) read() Books {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Books{Balances: b.books.Balances, Ledger: slices.Clone(b.books.Ledger)}
}

// Snapshot implements [raft.FSM].
func (b *bank) Snapshot() (raft.FSMSnapshot, error) { return frozen(b.read()), nil }

// Restore implements [raft.FSM].
func (b *bank) Restore(from io.ReadCloser) error {
	defer from.Close() //nolint:errcheck // it was read
	var books Books
	if err := json.NewDecoder(from).Decode(&books); err != nil {
		return err
	}
	b.mu.Lock()
	b.books = books
	b.mu.Unlock()
	return nil
}

type frozen Books

// Persist implements [raft.FSMSnapshot].
func (f frozen) Persist(sink raft.SnapshotSink) error {
	if err := json.NewEncoder(sink).Encode(f); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

// Release implements [raft.FSMSnapshot].
func (frozen) Release() {}
