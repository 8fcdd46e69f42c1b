// Package tested is a payment service that is tested by package oncetest: each payment takes money off an account, in a
// transaction, or as a step beside the mail that confirms it.
package tested

import (
	"context"
	"database/sql"
	"errors"

	"github.com/everonce/everonce"
)

// Schema is the service's own part of the database.
const Schema = `
CREATE TABLE IF NOT EXISTS account (client TEXT PRIMARY KEY, cents INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS ledger (client TEXT NOT NULL, payment TEXT NOT NULL, cents INTEGER NOT NULL)`

// Payment is what a client asks for.
type Payment struct {
	Client, ID string
	Cents      int
}

func (p Payment) key() everonce.Key {
	return everonce.Key{Scope: everonce.ScopeOf(p.Client, "payments"), ID: p.ID}
}

// Bank charges, in a transaction of the service's.
type Bank interface {
	Charge(ctx context.Context, tx *sql.Tx, p Payment) (balance int, err error)
}

// Accounts is the Bank in the tables of [Schema].
type Accounts struct{}

// Charge takes the money off the account, and notes it in the ledger. It is of the kind that must not
// happen twice.
func (Accounts) Charge(ctx context.Context, tx *sql.Tx, p Payment) (balance int, err error) {
	err = tx.QueryRowContext(ctx,
		`UPDATE account SET cents = cents - ? WHERE client = ? AND cents >= ? RETURNING cents`,
		p.Cents, p.Client, p.Cents).Scan(&balance)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return 0, everonce.Permanent("no_funds", errors.New("the balance is too low"), nil)
	case err != nil:
		return 0, err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO ledger VALUES (?, ?, ?)`, p.Client, p.ID, p.Cents)
	return balance, err
}

// Mailer sends a mail. It does not deduplicate.
type Mailer interface {
	Mail(ctx context.Context, key, text string) error
}

// Service takes payments.
type Service struct {
	Bank Bank
	Tx   *everonce.TxReceiver[*sql.Tx]
	Do   *everonce.Receiver
	Mail Mailer
}

// Pay charges, and nothing else: in one transaction with its record.
func (s *Service) Pay(ctx context.Context, p Payment) (everonce.Result[int], error) {
	return everonce.Transact(ctx, s.Tx, p.key(), func(ctx context.Context, tx *sql.Tx) (int, error) {
		return s.Bank.Charge(ctx, tx, p)
	}, everonce.FingerprintOf(p.Cents))
}

// PayAndMail charges, and mails that it did. The charge is never unknown; the mail may be, and is not sent
// a second time then.
func (s *Service) PayAndMail(ctx context.Context, p Payment) (everonce.Result[int], error) {
	return everonce.Do(ctx, s.Do, p.key(), func(ctx context.Context, a *everonce.Attempt) (int, error) {
		balance, err := everonce.StepTx(ctx, a, s.Tx, "charge", func(ctx context.Context, tx *sql.Tx) (int, error) {
			return s.Bank.Charge(ctx, tx, p)
		})
		if err != nil {
			return 0, err
		}
		_, err = everonce.Step(ctx, a, "mail", func(ctx context.Context) (struct{}, error) {
			return struct{}{}, s.Mail.Mail(ctx, a.DownstreamKey("mail"), p.Client+"/"+p.ID)
		})
		return balance, err
	}, everonce.FingerprintOf(p.Cents), everonce.EffectsInSteps())
}
