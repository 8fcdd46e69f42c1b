package sqlstore

import (
	"bytes"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/everonce/everonce/internal/sqldb"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/transition"
)

// rowOf hands columns over as a driver does: an int64, a string or bytes for each.
type rowOf []any

func (r rowOf) Scan(dest ...any) error {
	if len(dest) != len(r) {
		return errors.New("another number of columns")
	}
	for i, d := range dest {
		switch d := d.(type) {
		case *int64:
			*d = r[i].(int64)
		case *string:
			*d = r[i].(string)
		case *[]byte:
			*d = r[i].([]byte)
		default:
			return errors.New("a kind of column that drivers do not know")
		}
	}
	return nil
}

// columns are the values of a row as a fuzzer can make them.
type columns struct {
	id, nonce, sum, data, summary                           []byte
	scope, name, owner, alg, codec, step, lastError         string
	state, token, attempt, kind, prevState, format          int64
	now, lease, created, completed, until, gone, due, count int64
}

func (c *columns) record() rowOf {
	return rowOf{
		c.now, int64(1), int64(0), c.id, c.scope, c.name,
		c.state, c.token, c.nonce, c.owner, c.attempt, c.lease, c.alg, c.sum,
		c.kind, c.codec, c.data, c.summary, c.step, c.prevState, c.owner, c.created, c.lastError,
		c.format, c.created, c.created, c.lease, c.completed, c.until, c.gone, c.due, c.count, int64(1),
	}
}

func (c *columns) brief() rowOf {
	return rowOf{
		c.now, c.state, c.token, c.nonce, c.attempt, c.lease, c.alg, c.sum,
		c.kind, c.codec, c.data, c.summary, c.step, c.format, c.until, c.gone, c.owner, c.completed,
	}
}

func (c *columns) stepRow() rowOf {
	return rowOf{c.name, c.state, c.attempt, c.kind, c.codec, c.data, c.summary, c.created, c.completed}
}

// FuzzRecord reads rows of any content, as a manual change of the tables can leave them. A row that is not a record is
// ErrCorruptRecord, a newer version's record is distinguished, and a record that is read can be decided on and is
// written back unchanged.
func FuzzRecord(f *testing.F) {
	id, nonce, sum := make([]byte, 32), make([]byte, 16), make([]byte, 32)
	id[0], nonce[0], sum[0] = 7, 8, 9
	const now = int64(1_790_000_000_000_000)
	add := func(id, nonce, sum, data []byte, alg, text string, state, token, attempt, kind, prevState, format, lease, until, gone int64) {
		f.Add(id, nonce, sum, data, alg, text, state, token, attempt, kind, prevState, format, now, lease, until, gone)
	}
	add(id, nonce, sum, nil, "json/1", "", 1, now, 1, 0, 0, 1, now+1, 0, 0)                     // claimed
	add(id, nonce, nil, nil, "", "timeout", 2, now, 3, 0, 1, 1, 0, 0, now+1)                    // released
	add(id, nonce, sum, nil, "json/1", "mail", 3, now, 1, 0, 3, 1, 0, 0, 0)                     // abandoned
	add(id, nonce, sum, []byte(`{"n":1}`), "json/1", "json", 4, now, 1, 1, 2, 1, 0, now, now+1) // completed
	add(id, nonce, sum, nil, "json/1", "json", 4, now, 1, 1, 0, 1, 0, now-1, now+1)             // a tombstone
	add(nil, nil, nil, nil, "", "", 0, 0, 0, 0, 0, 0, 0, 0, 0)                                  // no record
	add(id, nonce[:1], sum, nil, "json/1", "", 77, 0, -1, 300, 257, 99, 0, 0, 0)                // of a newer version
	add(id, nonce[:1], sum, nil, "json/1", "", 1, 1, 1, 0, 0, 1, 1, 0, 0)
	add(id, make([]byte, 17), sum, nil, "json/1", "", 1, 1, 1, 0, 0, 1, 1, 0, 0)
	add(id[:31], nonce, sum, nil, "json/1", "", 1, 1, 1, 0, 0, 1, 1, 0, 0)
	add(id, nonce, make([]byte, 33), nil, "json/1", "", 1, 1, 1, 0, 0, 1, 1, 0, 0)
	add(id, nonce, nil, nil, "json/1", "", 1, 1, 1, 0, 0, 1, 1, 0, 0)
	add(id, nonce, sum, nil, "", "", 1, 1, 1, 0, 0, 1, 1, 0, 0)
	add(id, nonce, sum, nil, "json/1", "", 257, 1, 1, 0, 0, 1, 1, 0, 0)
	add(id, nonce, sum, nil, "json/1", "", 4, 1, 1, 257, 0, 1, 0, 0, 0)
	add(id, nonce, sum, nil, "json/1", "", 1, 1, 1<<31, 0, 0, 1, 1, 0, 0)   // more attempts than an int of 32 bits has
	add(id, nonce, sum, nil, "json/1", "", 1, 1, 1<<32+1, 0, 0, 1, 1, 0, 0) // which it would read as one
	add(id, nonce, sum, nil, "json/1", "", 1, 1, 1, 0, 0, 1<<32+1, 1, 0, 0) // as it would this format
	add(id, nonce, sum, nil, "json/1", "", 2, 1, -1, 1, 0, 1, 1, 0, 0)      // as a step it is done, in no attempt
	add(id, nonce, nil, nil, "", "", 2, now, 1, 0, 0, 1, 0, 0, -1)          // over before all times
	add(id, nonce, nil, nil, "", "", 1, now, 1, 0, 0, 1, 1<<60+1, 0, 0)     // a lease that never ends
	add(id, nonce, nil, nil, "", "", 1, 1<<60+1, 1, 0, 0, 1, now, 0, 0)     // a token that hardly grows
	add(id, nonce, sum, nil, "json/1", "", 1, -1<<63, 1<<62, -1<<63, 1<<62, -1<<63, -1<<63, 1<<63-1, 1<<63-1)
	f.Fuzz(func(t *testing.T, id, nonce, sum, data []byte, alg, text string, state, token, attempt, kind, prevState, format, now, lease, until, gone int64) {
		if len(id) == 0 { // NULL, which a fuzzer cannot make
			id = nil
		}
		c := &columns{
			id: id, nonce: nonce, sum: sum, data: data, summary: data,
			scope: text, name: text, owner: text, alg: alg, codec: text, step: text, lastError: text,
			state: state, token: token, attempt: attempt, kind: kind, prevState: prevState, format: format,
			now: now, lease: lease, created: until, completed: gone, until: until, gone: gone, due: gone, count: attempt,
		}
		whole, brief := new(row), &briefRead{row: row{rec: driver.Record{ID: driver.RecordID{1}}}}
		if err := whole.scan(c.record()); err != nil {
			t.Fatal(err)
		}
		if err := brief.scan(c.brief()); err != nil {
			t.Fatal(err)
		}
		if whole.found != (id != nil) {
			t.Errorf("found %v, of an ID of %d bytes", whole.found, len(id))
		}
		for _, w := range []*row{whole, &brief.row} {
			checkRow(t, w, c)
		}
		if rec, err := whole.record(); rec != nil && err == nil && format <= driver.FormatVersion {
			again(t, rec, c)
		}

		step, err := scanStep(c.stepRow())
		if legal := state >= int64(driver.StepOpen) && state <= int64(driver.StepNotDone) && kind >= 0 && kind <= int64(driver.ResultElided) && (state == int64(driver.StepDone)) == (kind != 0); legal != (err == nil) {
			t.Errorf("a step of state %d and kind %d: %+v, %v", state, kind, step, err)
		} else if !legal && !errors.Is(err, driver.ErrCorruptRecord) {
			t.Errorf("an impossible step: %v, want ErrCorruptRecord", err)
		} else if legal && (int64(step.State) != state || int64(step.Attempt) != min(max(attempt, math.MinInt32), math.MaxInt32) || int64(step.Result.Kind) != kind || !step.Readable()) {
			t.Errorf("of a step of state %d and kind %d in attempt %d was read %+v", state, kind, attempt, step)
		}
	})
}

// checkRow checks what was read of a row.
func checkRow(t *testing.T, w *row, c *columns) {
	t.Helper()
	rec, err := w.record()
	switch {
	case rec == nil:
		if err != nil || w.found {
			t.Errorf("nothing was read: %v", err)
		}
	case c.format > driver.FormatVersion:
		if err != nil || rec.Format <= driver.FormatVersion {
			t.Errorf("a newer version's record has version %d, %v", rec.Format, err)
		}
	case err != nil:
		if !errors.Is(err, driver.ErrCorruptRecord) {
			t.Errorf("%v, want ErrCorruptRecord", err)
		}
	default:
		if c.attempt > math.MaxInt32 {
			t.Errorf("%d attempts were read, which is more than an int has on every machine", c.attempt)
		}
		if int64(rec.State) != c.state || int64(rec.Result.Kind) != c.kind || int64(rec.Attempt) != c.attempt || int64(rec.Token) != c.token || !bytes.Equal(rec.Nonce[:], c.nonce) {
			t.Errorf("%+v was read of %+v", rec, c)
		}
		for _, at := range []time.Time{rec.LeaseUntil, rec.CreatedAt, rec.ClaimedAt, rec.UpdatedAt, rec.CompletedAt, rec.ResultUntil, rec.PurgeAt, rec.Previous.ClaimedAt} {
			if us := at.UnixMicro(); !at.IsZero() && (us < 0 || us > lastTime) {
				t.Errorf("a time was read that no version has written: %d", us)
			}
		}
		if next, _, err := transition.Claim(rec, driver.ClaimRequest{Nonce: driver.Nonce{1}, Take: driver.TakeForced, Lease: time.Minute}, w.now); next != nil && next.Nonce != rec.Nonce && next.Token <= rec.Token {
			t.Errorf("the token went from %d to %d, %v", rec.Token, next.Token, err)
		}
		if rec.State == driver.StateClaimed && rec.LeaseUntil.IsZero() {
			t.Error("a claim without a lease was read")
		}
		if (rec.State == driver.StateCompleted) != (rec.Result.Kind != 0) {
			t.Errorf("%v with a result of kind %d was read", rec.State, rec.Result.Kind)
		}
		for _, take := range []driver.TakeOver{driver.TakeNone, driver.TakeForced} {
			if d := driver.Decide(rec, driver.ClaimRequest{Nonce: driver.Nonce{1}, Take: take, Lease: time.Minute}, w.now); d < driver.DecideClaimed {
				t.Errorf("no decision on %+v", rec)
			}
		}
	}
}

// again checks that a record is written with the columns that it was read from.
func again(t *testing.T, rec *driver.Record, c *columns) {
	t.Helper()
	args := swapArgs(nil, rec, c.count)
	want := c.record()[6 : 6+len(args)]
	for i, kind := range swapKinds {
		got := args[i]
		if b, ok := want[i].([]byte); ok {
			if have, _ := got.([]byte); !bytes.Equal(have, b) {
				t.Errorf("column %d: %x, was %x", i, have, b)
			}
			continue
		}
		if got == nil { // NULL is read as zero
			got = map[sqldb.ArgKind]any{sqldb.ArgInt: int64(0), sqldb.ArgText: ""}[kind]
		}
		if i != dueColumn && got != want[i] {
			t.Errorf("column %d: %v, was %v", i, got, want[i])
		}
	}
}

// dueColumn is the column that follows from the others: due_at.
const dueColumn = 24
