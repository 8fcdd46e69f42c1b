package sqlstore

import (
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/sqldb"
)

// BriefColumns are the columns of a record that the answer to a duplicate needs, in the order of Brief's result. Most
// of the cost of a replay is in the columns that it reads. The last two are for observers.
const BriefColumns = "state, token, nonce, attempt, lease_until, fp_alg, fp_sum, result_kind, result_codec, result_data, result_summary, " +
	"unknown_step, format, result_until, purge_at, owner, completed_at"

func (w writer) brief() *sqldb.Statement {
	// The time is one more column: a separate table would be joined, which costs the server more than the look for the
	// key.
	return w.rows("brief", 1, "SELECT "+w.Now+", "+BriefColumns+" FROM {record} WHERE id = {1b}")
}

// briefRead is one call of Brief, and where its answer goes, in one piece of memory.
type briefRead struct {
	row
	call   sqldb.Call
	args   [1]any
	answer struct {
		now, state, token, attempt, lease, kind, format, until, gone, completed int64
		nonce, sum                                                              []byte
		columns                                                                 [18]any // where each goes
	}
}

// readBrief makes the call of Brief. If it returns no row, there is neither a record nor a time.
func (s *Store[Tx]) readBrief(id *driver.RecordID) *briefRead {
	b := &briefRead{row: row{locked: true}}
	b.rec.ID = *id
	b.args[0] = b.rec.ID[:]
	b.call = sqldb.Call{Statement: s.text.Brief, Args: b.args[:], Each: b.scan}
	return b
}

func (b *briefRead) scan(r sqldb.Row) error {
	rec, a := &b.rec, &b.answer
	a.columns = [...]any{
		&a.now, &a.state, &a.token, &a.nonce, &a.attempt, &a.lease, &rec.Fingerprint.Alg, &a.sum,
		&a.kind, &rec.Result.Codec, &rec.Result.Data, &rec.Result.Summary, &rec.UnknownStep, &a.format, &a.until, &a.gone,
		&rec.Owner, &a.completed,
	}
	if err := r.Scan(a.columns[:]...); err != nil {
		return err
	}
	b.now, b.found = at(a.now), true
	rec.Format, rec.State, rec.Token, rec.Attempt = count(a.format), driver.State(a.state), driver.Token(a.token), count(a.attempt) //nolint:gosec // fill checks the range
	rec.LeaseUntil, rec.ResultUntil, rec.PurgeAt, rec.CompletedAt = at(a.lease), at(a.until), at(a.gone), at(a.completed)
	rec.Result.Kind = driver.ResultKind(a.kind) //nolint:gosec // as above
	if a.format > driver.FormatVersion {        // what a newer version wrote is not judged by what this one knows
		return nil
	}
	b.err = b.fill(rec.ID[:], a.nonce, a.sum, [...]int64{a.state, a.kind, 0, a.attempt, a.token, a.format}, a.lease, a.until, a.gone, a.completed)
	return nil
}
