package e2e

import (
	"errors"
	"fmt"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/store/pgxstore"
)

// settleUnknown does what an operator does: every message among the dead letters is settled by what the gateway says,
// and all of them are replayed. It reports whether there were any.
func (s *stream) settleUnknown() bool {
	s.t.Helper()
	letters, err := s.spec.broker().letters(s.ctx, wayRefused)
	s.must(err, "the dead letters cannot be opened")
	defer func() {
		if err := letters.Close(); err != nil {
			s.t.Error(err)
		}
	}()
	var all []consume.DeadLetter
	for letter, err := range letters.All(s.ctx, consume.Filter{}) {
		s.must(err, "the dead letters cannot be listed")
		all = append(all, letter)
	}
	store, err := pgxstore.New(s.pool, &pgxstore.Options{Schema: s.spec.Schema})
	s.must(err, "the store cannot be opened")
	now := map[int]bool{}
	selfSettled := 0
	for i := range all {
		var op int
		_, err := fmt.Sscanf(all[i].Message.ID, "op-%d", &op)
		s.must(err, "a dead letter is none of these messages")
		if all[i].Reason != consume.Unknown || s.verdicts[op] != 0 && !now[op] { // replayed, it would be one again, without end
			s.must(errDeadLetters, "message %d (settled before: %v) is a dead letter: %s, %s", op, s.verdicts[op] != 0, all[i].Reason, all[i].Detail)
		}
		if now[op] {
			continue
		}
		now[op] = true
		s.verdicts[op] = everonce.SettleNotDone
		if _, calls := s.referee.charged(wayRefused, op); calls > 0 {
			s.verdicts[op] = everonce.SettleDone
		}
		key := everonce.Key{Scope: everonce.ScopeOf(wayRefused), ID: all[i].Message.ID}
		err = everonce.Settle(s.ctx, store, key.RecordID(), everonce.Settlement{Verdict: s.verdicts[op], By: "audit"})
		if errors.Is(err, everonce.ErrNotUnknown) {
			// A copy found a lease that had ended, and then the end of the unknown attempt was recorded after all.
			selfSettled++
			continue
		}
		s.must(err, "message %d cannot be settled", op)
	}
	if len(all) == 0 {
		return false
	}
	replayed, err := letters.Replay(s.ctx, consume.Filter{})
	s.must(err, "the dead letters cannot be replayed")
	s.t.Logf("%d dead letters, of %d messages that were unknown, were settled (%d had settled themselves) and replayed", replayed, len(now), selfSettled)
	return true
}
