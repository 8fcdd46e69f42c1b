package sqlstore

import "github.com/everonce/everonce"

// BriefColumns are the columns of a record that an answer to a duplicate needs, in the order in which
// Brief answers them: what a replay costs is mostly the columns that it reads.
const BriefColumns = "state, token, nonce, attempt, lease_until, fp_alg, fp_sum, result_kind, result_codec, result_data, result_summary, " +
	"unknown_step, format, result_until, purge_at"

func (w writer) brief() *Statement {
	return w.rows("brief", 1, "SELECT clock.now, "+qualified(BriefColumns)+" FROM {record} AS r, "+w.from()+" WHERE r.id = {1b}")
}

// readBrief makes the call of Brief into w. Where it answers no row there is no record, and no time.
func (s *Store[Tx]) readBrief(id *everonce.RecordID, w *row) *Call {
	*w = row{locked: true}
	w.rec.ID = *id
	return &Call{Statement: s.text.Brief, Args: []any{id[:]}, Each: w.scanBrief}
}

func (w *row) scanBrief(r Row) error {
	var now, state, token, attempt, lease, kind, format, until, gone int64
	var nonce, sum []byte
	rec := &w.rec
	if err := r.Scan(&now, &state, &token, &nonce, &attempt, &lease, &rec.Fingerprint.Alg, &sum,
		&kind, &rec.Result.Codec, &rec.Result.Data, &rec.Result.Summary, &rec.UnknownStep, &format, &until, &gone); err != nil {
		return err
	}
	w.now, w.found = at(now), true
	rec.Format, rec.State, rec.Token, rec.Attempt = int(format), everonce.State(state), everonce.Token(token), int(attempt) //nolint:gosec // fill checks the range
	rec.LeaseUntil, rec.ResultUntil, rec.PurgeAt = at(lease), at(until), at(gone)
	rec.Result.Kind = everonce.ResultKind(kind) //nolint:gosec // as above
	if format > everonce.FormatVersion {        // what a newer version wrote is not judged by what this one knows
		return nil
	}
	w.err = w.fill(rec.ID[:], nonce, sum, [...]int64{state, kind, 0, attempt, token, format})
	return nil
}
