package sqlsession

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/session"
	"github.com/everonce/everonce/session/internal/rules"
)

// row is the row of a session.
type row struct {
	rules.Session
	id, bytes, last int64
	principal       string
	now             int64 // when it was read, by the store's clock
}

func (r *row) scan(from sqldb.Row) error {
	var nonce string
	var ordered, epoch, mark, high int64
	if err := from.Scan(&r.id, &nonce, &r.principal, &ordered, &epoch, &mark, &high, &r.bytes, &r.last, &r.now); err != nil {
		return err
	}
	r.Ordered, r.Epoch, r.Mark, r.High = ordered != 0, uint64(epoch), uint64(mark), uint64(high) //nolint:gosec // they were fit
	_, err := hex.Decode(r.Nonce[:], []byte(nonce))
	return err
}

// intoRows scans a call's rows into rows, by the session's ID.
func intoRows(rows map[session.ID]*row) func(sqldb.Row) error {
	return func(from sqldb.Row) error {
		r := new(row)
		err := r.scan(from)
		rows[session.ID(r.id)] = r //nolint:gosec // not negative
		return err
	}
}

// admit decides whether a command is for this session.
func (s *Store[Tx]) admit(r *row, nonce session.Nonce, epoch uint64) session.Refusal {
	if r.now-r.last >= s.lease {
		return session.ErrSessionExpired
	}
	return session.Refusal(r.Admit(hashed(nonce), epoch))
}

// hashed returns the hash of a nonce that the table holds: a reader of the table cannot use another's session.
func hashed(nonce session.Nonce) (half [16]byte) {
	sum := sha256.Sum256(nonce[:])
	copy(half[:], sum[:])
	return half
}

func text(hash [16]byte) string { return hex.EncodeToString(hash[:]) }

// into scans a call's rows into numbers; the last row remains.
func into(call *sqldb.Call, dest ...any) *sqldb.Call {
	return call.ForEach(func(r sqldb.Row) error { return r.Scan(dest...) })
}

func signed(n uint64) int64 { return int64(n) } //nolint:gosec // at most MaxInt64: see valid

func flag(on bool) int64 {
	if on {
		return 1
	}
	return 0
}
