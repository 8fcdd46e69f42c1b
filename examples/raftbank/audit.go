package main

import (
	"fmt"
	"maps"
	"slices"
)

// Report is what a run printed by -json.
type Report struct {
	Transfers     int     `json:"transfers"` // that tellers asked for
	LeaderChanges int     `json:"leader_changes"`
	Kills         int     `json:"kills"`        // of nodes, by SIGKILL
	Retries       int     `json:"retries"`      // of transfers: how often one was sent again after no answer came
	Doubled       int     `json:"doubled"`      // entries of the ledger that are one too many
	Lost          int     `json:"lost"`         // transfers that were answered, and are not in the ledger where the answer said
	Linearizable  bool    `json:"linearizable"` // what the tellers saw, transfers and reads
	Seconds       float64 `json:"seconds"`
}

// count compares the ledger with the replies that tellers got. A transfer whose outcome is unknown may be in it once,
// or not, but only tellers that give up early may have unknown outcomes: the others must get a reply.
func (b *Books) count(entries []entry) (rep Report, err error) {
	times := map[string]int{}
	for _, id := range b.Ledger {
		times[id]++
	}
	for _, e := range entries {
		if e.told == read {
			continue
		}
		rep.Transfers++
		if (e.told == unknown || e.told == unsent) && !e.early {
			return rep, fmt.Errorf("the outcome of the transfer %s is unknown, after %v of patience", e.transfer.ID, patience)
		}
		n := times[e.transfer.ID]
		delete(times, e.transfer.ID)
		switch e.told {
		case done:
			if e.position < 1 || e.position > len(b.Ledger) || b.Ledger[e.position-1] != e.transfer.ID {
				rep.Lost++
			}
			rep.Doubled += max(0, n-1)
		case unknown:
			rep.Doubled += max(0, n-1)
		case refused: // it was executed, and executed again, and that was answered
			rep.Doubled += n
		case unsent:
			if n > 0 {
				return rep, fmt.Errorf("the transfer %s was not sent, and is in the ledger", e.transfer.ID)
			}
		}
	}
	if len(times) > 0 {
		return rep, fmt.Errorf("these transfers of the ledger were never sent: %v", slices.Sorted(maps.Keys(times)))
	}
	var sum int64
	for _, cents := range b.Balances {
		sum += cents
	}
	if sum != accounts*opening {
		return rep, fmt.Errorf("the accounts have %d cents, and had %d", sum, accounts*opening)
	}
	return rep, nil
}
