package main

import (
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// knows is what a teller knows of its call.
type knows int

const (
	done    knows = iota // it took effect
	refused              // it did not, for want of money
	unknown              // it may have, or not
	unsent               // it did not
	read                 // it was a read
)

// entry is a call of a teller.
type entry struct {
	told      knows
	transfer  Transfer
	position  int             // in the ledger; of a read, how long that was
	balances  [accounts]int64 // that were read
	call, end int64           // when it began and ended, by the one clock of the tellers
}

// history is what all tellers saw.
type history struct {
	mu      sync.Mutex
	entries []entry
}

func (h *history) add(e entry) {
	h.mu.Lock()
	h.entries = append(h.entries, e)
	h.mu.Unlock()
}

// state is the bank's, as the checker sees it.
type state struct {
	balances  [accounts]int64
	transfers int
}

// model is a bank on one machine, one call after another.
var model = porcupine.Model{
	Init: func() any { return state{balances: newBooks().Balances} },
	Step: func(s, input, _ any) (bool, any) {
		was, e := s.(state), input.(entry)
		if e.told == read {
			return was == state{e.balances, e.position}, was
		}
		books := Books{Balances: was.balances}
		_, err := books.transfer(e.transfer)
		is := state{books.Balances, was.transfers + len(books.Ledger)}
		if e.told == refused {
			return err != nil, is
		}
		return err == nil && is.transfers == e.position, is
	},
}

// checkLimit is how long the checker may think.
const checkLimit = time.Minute

// linearizable reports whether there is an order of the calls that explains all answers, and the ledger: each took effect at
// one moment between its beginning and its end. What is unknown to its teller, the ledger tells, but not when; to leave
// that open would be too many orders to look at.
func (h *history) linearizable(ledger []string) (bool, error) {
	at := map[string]int{}
	for i, id := range slices.Backward(ledger) {
		at[id] = i + 1
	}
	var calls []porcupine.Operation
	for _, e := range h.entries {
		if e.told == unsent || e.told == unknown && at[e.transfer.ID] == 0 {
			continue
		}
		if e.told == unknown {
			e.told, e.position, e.end = done, at[e.transfer.ID], math.MaxInt64
		}
		calls = append(calls, porcupine.Operation{Input: e, Call: e.call, Return: e.end})
	}
	switch porcupine.CheckOperationsTimeout(model, calls, checkLimit) {
	case porcupine.Ok:
		return true, nil
	case porcupine.Illegal:
		return false, nil
	}
	return false, errors.New("whether the history is linearizable was not found out in time")
}
