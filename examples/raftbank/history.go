package main

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// knows is a teller's knowledge of its call.
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
	early     bool            // it was to be given up early
	node      string          // that was read
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
	balances         [accounts]int64
	transfers, reads int // reads are those since the last transfer
}

// model is a bank on one machine, one call after another. It gets how many reads saw each number of transfers: all of
// these come before the next transfer, so the checker need not look at other orders.
func model(reads map[int]int) porcupine.Model {
	step := func(was state, e entry) (bool, state) {
		if e.told == read {
			return was.balances == e.balances && was.transfers == e.position, state{was.balances, was.transfers, was.reads + 1}
		}
		books := Books{Balances: was.balances}
		_, err := books.transfer(e.transfer)
		if e.told == refused {
			return err != nil, was
		}
		return err == nil && e.position == was.transfers+1 && was.reads == reads[was.transfers], state{books.Balances, e.position, 0}
	}
	return porcupine.Model{
		Init: func() any { return state{balances: newBooks().Balances} },
		Step: func(was, input, _ any) (bool, any) { return step(was.(state), input.(entry)) },
	}
}

// stale returns a call that was answered before another one began, which missed it; and false if no such calls exist.
// It shows why a history is not linearizable.
func (h *history) stale() (seen, missed entry, found bool) {
	calls := slices.DeleteFunc(slices.Clone(h.entries), func(e entry) bool { return e.told != done && e.told != read })
	slices.SortFunc(calls, func(a, b entry) int { return cmp.Compare(a.call, b.call) })
	ended := slices.SortedFunc(slices.Values(calls), func(a, b entry) int { return cmp.Compare(a.end, b.end) })
	for _, e := range calls {
		for len(ended) > 0 && ended[0].end < e.call {
			if ended[0].position > seen.position {
				seen = ended[0]
			}
			ended = ended[1:]
		}
		if e.position < seen.position {
			return seen, e, true
		}
	}
	return entry{}, entry{}, false
}

// checkLimit is how long the checker may think.
const checkLimit = time.Minute

// linearizable reports whether an order of the calls explains all answers, and the ledger: each took effect at one
// moment between its beginning and its end. If an outcome is unknown to its teller, the ledger has it, but not its
// time; to leave that open would be too many orders to search.
func (h *history) linearizable(ledger []string) (bool, error) {
	at := map[string]int{}
	for i, id := range slices.Backward(ledger) {
		at[id] = i + 1
	}
	var calls []porcupine.Operation
	reads := map[int]int{}
	for _, e := range h.entries {
		if e.told == read {
			reads[e.position]++
		}
		if e.told == unsent || e.told == unknown && at[e.transfer.ID] == 0 {
			continue
		}
		if e.told == unknown {
			e.told, e.position, e.end = done, at[e.transfer.ID], math.MaxInt64
		}
		calls = append(calls, porcupine.Operation{Input: e, Call: e.call, Return: e.end})
	}
	switch porcupine.CheckOperationsTimeout(model(reads), calls, checkLimit) {
	case porcupine.Ok:
		return true, nil
	case porcupine.Illegal:
		return false, nil
	}
	return false, errors.New("whether the history is linearizable was not found out in time")
}
