package orm

import (
	"context"
	"database/sql"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/everonce/everonce"
)

// ChargeByEnt makes a charge by ent, in a transaction that ent was given.
func ChargeByEnt(ctx context.Context, db *sql.DB, r *Receiver, c Charge) (everonce.Result[Receipt], error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return everonce.Result[Receipt]{}, err
	}
	defer tx.Rollback() //nolint:errcheck // after the commit there is nothing left to roll back
	drv := DriverOf(tx) // with generated code: client := ent.NewClient(ent.Driver(drv))

	res, err := everonce.DoTx(ctx, tx, r, c.key(), func(ctx context.Context) (Receipt, error) {
		query, args := entsql.Dialect(dialect.Postgres).Update("account").
			Add("cents", -c.Cents).
			Where(entsql.And(entsql.EQ("id", c.Account), entsql.GTE("cents", c.Cents))).
			Query()
		var done entsql.Result
		if err := drv.Exec(ctx, query, args, &done); err != nil {
			return Receipt{}, err
		}
		return c.receipt(), enough(done.RowsAffected())
	}, c.fingerprint())

	if !keep(res.Outcome, err) {
		return res, err
	}
	if failed := tx.Commit(); failed != nil {
		return everonce.Result[Receipt]{}, failed
	}
	return res, err
}

// DriverOf returns a driver of ent over a transaction that somebody else ends.
func DriverOf(tx *sql.Tx) dialect.Driver {
	return txDriver{entsql.NewDriver(dialect.Postgres, entsql.Conn{ExecQuerier: tx})}
}

// txDriver keeps ent from beginning, committing and closing: it is inside a transaction already.
type txDriver struct{ *entsql.Driver }

// Tx is what ent's generated code calls for a change of several rows.
func (d txDriver) Tx(context.Context) (dialect.Tx, error) { return dialect.NopTx(d), nil }

// BeginTx is what it calls where options are given.
func (d txDriver) BeginTx(ctx context.Context, _ *entsql.TxOptions) (dialect.Tx, error) {
	return d.Tx(ctx)
}

// Close does nothing: the connection is not ent's.
func (d txDriver) Close() error { return nil }
