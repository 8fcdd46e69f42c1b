package sqlqueue

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/everonce/everonce/internal/retry"
	"github.com/everonce/everonce/internal/sqldb"
)

// How says how a claimed row ends.
type How int

// The ways.
const (
	// Finish: it is done.
	Finish How = iota
	// Drop: it is done, and removed at once.
	Drop
	// Again: it is tried again after a delay.
	Again
	// Later: it is tried again after a delay, and this try is not an attempt.
	Later
	// Release: it was not tried, uses no attempt, and others may claim it.
	Release
	// GiveUp discards it.
	GiveUp
	// Block sets it aside, and what has the same order key waits for it.
	Block
	// SetAside sets it aside, and what has the same order key goes on.
	SetAside
)

// End is how a row ends.
type End struct {
	Seq   int64
	How   How
	After time.Duration // of Again and Later
	Error string        // of Again, Later, GiveUp, Block and SetAside
}

// maxError bounds the text of an error, in bytes.
const maxError = 1000

// ErrorText returns the text of an error as a row keeps it.
func ErrorText(err error) string {
	if err == nil {
		return ""
	}
	text := strings.ReplaceAll(strings.ToValidUTF8(err.Error(), "?"), "\x00", "?")
	if len(text) <= maxError {
		return text
	}
	cut := maxError
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut]
}

// claimedBy is the condition that a row of the list {2t} belongs to the claim {1i}. Its lease may have ended, as long
// as no other claim has taken it. The sum keeps the planner from an index of the rows that are in state 0: few, the
// planner expects, but a database that holds an old snapshot has all rows that ever were in that state.
func (q *Queue) claimedBy() string {
	return " WHERE q.token = {1i} AND q.state + 0 = 0 AND " + q.dialect.InInts("q.seq", "{2t}")
}

// Ends returns the calls that end rows which the claim of the token holds. Each row that the claim has lost is one less
// in the sum of their [sqldb.Call.Affected].
func (q *Queue) Ends(token int64, ends ...End) []*sqldb.Call {
	var calls []*sqldb.Call
	together := func(how How, name, template string) {
		var seqs []int64
		for _, end := range ends {
			if end.How == how {
				seqs = append(seqs, end.Seq)
			}
		}
		if len(seqs) > 0 {
			calls = append(calls, q.call(name, template, token, q.dialect.Ints(seqs)))
		}
	}
	together(Finish, "finish", "UPDATE {t} AS q SET state = 4, done_at = {now}, token = 0, error = ''"+q.claimedBy())
	together(Drop, "drop", "{delete}"+q.claimedBy())
	together(Release, "release", "UPDATE {t} AS q SET due_at = {now}, rank = {now}, attempts = attempts - 1, token = 0"+q.claimedBy())
	for _, end := range ends {
		seq := q.dialect.Ints([]int64{end.Seq})
		switch end.How {
		case Again:
			calls = append(calls, q.call("again", "UPDATE {t} AS q SET due_at = {now} + {3i}, rank = {now} + {3i}, token = 0, error = {4t}"+q.claimedBy(),
				token, seq, end.After.Microseconds(), end.Error))
		case Later:
			calls = append(calls, q.call("later", "UPDATE {t} AS q SET due_at = {now} + {3i}, rank = {now} + {3i}, attempts = attempts - 1, token = 0, error = {4t}"+q.claimedBy(),
				token, seq, end.After.Microseconds(), end.Error))
		case GiveUp:
			calls = append(calls, q.call("give_up", "UPDATE {t} AS q SET state = 5, done_at = {now}, token = 0, error = {3t}"+q.claimedBy(), token, seq, end.Error))
		case Block, SetAside:
			state := map[How]State{Block: Blocked, SetAside: Dead}[end.How]
			calls = append(calls, q.call("set_aside", "UPDATE {t} AS q SET state = {3i}, token = 0, error = {4t}"+q.claimedBy(),
				token, seq, int64(state), end.Error))
		}
	}
	return calls
}

// End ends rows, and returns how many of them the claim had lost: those are another's.
func (q *Queue) End(ctx context.Context, token int64, ends ...End) (int, error) {
	if len(ends) == 0 {
		return 0, nil
	}
	calls := q.Ends(token, ends...)
	if err := q.send(ctx, calls...); err != nil {
		return 0, err
	}
	lost := len(ends)
	for _, call := range calls {
		lost -= int(call.Affected)
	}
	return lost, nil
}

// Renew renews the lease of rows, and returns how many of them the claim still has.
func (q *Queue) Renew(ctx context.Context, token int64, seqs []int64, lease time.Duration) (int, error) {
	call := q.call("renew", "UPDATE {t} AS q SET due_at = {now} + {3i}"+q.claimedBy(), token, q.dialect.Ints(seqs), lease.Microseconds())
	if err := q.send(ctx, call); err != nil {
		return 0, err
	}
	return int(call.Affected), nil
}

// send sends calls that are written together. Do not use the number of affected rows after an error: the calls may
// still be written.
func (q *Queue) send(ctx context.Context, calls ...*sqldb.Call) error {
	if one, ok := q.db.(sqldb.SingleWriter); ok && len(calls) == 1 {
		return one.WriteOne(ctx, calls[0])
	}
	return q.db.Write(ctx, func(ctx context.Context, c sqldb.Conn) error { return c.Send(ctx, calls...) })
}

// EndSurely is End, done [Surely].
func (q *Queue) EndSurely(ctx context.Context, lease time.Duration, token int64, ends ...End) (lost int, err error) {
	err = Surely(ctx, lease, func(ctx context.Context) (err error) {
		lost, err = q.End(ctx, token, ends...)
		return err
	})
	return lost, err
}

// Surely tries op until the database has answered, or until the lease has passed, past the end of ctx.
func Surely(ctx context.Context, lease time.Duration, op func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lease)
	defer cancel()
	for try := 1; ; try++ {
		if err := op(ctx); err == nil || retry.Pause(ctx, retry.Backoff(try)) != nil {
			return err
		}
	}
}
