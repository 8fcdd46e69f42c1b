package orm

import (
	"context"
	"database/sql"
	"fmt"

	"gorm.io/gorm"

	"github.com/everonce/everonce"
)

// Account is the row as GORM sees it.
type Account struct {
	ID    string `gorm:"primaryKey"`
	Cents int64
}

// TableName names the table in the singular.
func (Account) TableName() string { return "account" }

// ChargeByGORM makes a charge in a transaction of GORM.
func ChargeByGORM(ctx context.Context, db *gorm.DB, r *Receiver, c Charge) (res everonce.Result[Receipt], err error) {
	failed := db.WithContext(ctx).Transaction(func(gtx *gorm.DB) error {
		tx, err2 := sqlTx(gtx)
		if err2 != nil {
			return err2
		}
		res, err = everonce.DoTx(ctx, tx, r, c.key(), func(ctx context.Context) (Receipt, error) {
			done := gtx.WithContext(ctx).Model(&Account{}).
				Where("id = ? AND cents >= ?", c.Account, c.Cents).
				Update("cents", gorm.Expr("cents - ?", c.Cents))
			return c.receipt(), enough(done.RowsAffected, done.Error)
		}, c.fingerprint())
		if keep(res.Outcome, err) {
			return nil // GORM commits
		}
		return err
	})
	if failed != nil && keep(res.Outcome, err) { // the commit failed, so there is no result
		return everonce.Result[Receipt]{}, failed
	}
	return res, err
}

// sqlTx returns the transaction that GORM is in.
func sqlTx(gtx *gorm.DB) (*sql.Tx, error) {
	switch pool := gtx.Statement.ConnPool.(type) {
	case *sql.Tx:
		return pool, nil
	case *gorm.PreparedStmtTX: // with gorm.Config.PrepareStmt
		if tx, ok := pool.Tx.(*sql.Tx); ok {
			return tx, nil
		}
	}
	return nil, fmt.Errorf("a %T is no *sql.Tx: call this inside gorm.DB.Transaction", gtx.Statement.ConnPool)
}
