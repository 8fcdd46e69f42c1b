// Package orm shows sqlx, GORM and ent handing over their transaction to everonce: the charge, made by the
// library's own means, and the record of it commit together.
package orm

import (
	"database/sql"
	"errors"

	"github.com/everonce/everonce"
)

// Charge is what a client asks for.
type Charge struct {
	ID      string // the client's own, and the same in every retry
	Account string
	Cents   int64
}

// Receipt is what it gets, the first time and every time after.
type Receipt struct {
	Charge string
	Cents  int64
}

func (c Charge) key() everonce.Key {
	return everonce.Key{Scope: everonce.ScopeOf("shop", "charge"), ID: c.ID}
}

func (c Charge) fingerprint() everonce.Fingerprint {
	return everonce.FingerprintOf(c.Account, c.Cents)
}

func (c Charge) receipt() Receipt { return Receipt{Charge: c.ID, Cents: c.Cents} }

// errNoFunds is the answer that the client gets every time: it is saved like a receipt.
var errNoFunds = everonce.Permanent("no_funds", errors.New("the balance is too low"), nil)

// enough refuses a charge whose update has found no row.
func enough(changed int64, err error) error {
	if err == nil && changed == 0 {
		return errNoFunds
	}
	return err
}

// keep reports whether the caller's transaction is to be committed: it holds a result, or a permanent
// failure, which is recorded in it too.
func keep(o everonce.Outcome, err error) bool {
	return err == nil || o == everonce.Rejected
}

// Receiver is what the three functions share: pgxstore.NewSQL makes the store for it.
type Receiver = everonce.TxReceiver[*sql.Tx]
