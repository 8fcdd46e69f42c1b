package sqlitestore_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// Receivers of two secrets have two records for one key: DoTx on a store that is bound to another secret,
// or to one while the receiver has none, is refused before its work runs.
func TestDoTxOnAStoreOfAnotherSecretIsRefused(t *testing.T) {
	secret := func(b string) *everonce.Options {
		return &everonce.Options{IdentitySecret: bytes.Repeat([]byte(b), 32)}
	}
	for name, opts := range map[string]struct{ bound, other *everonce.Options }{
		"the secret is missing": {secret("x"), nil},
		"another secret":        {secret("x"), secret("y")},
		"a secret too many":     {nil, secret("y")},
	} {
		t.Run(name, func(t *testing.T) {
			s, ctx := open(t, filepath.Join(t.TempDir(), "bound.db"), nil), t.Context()
			receiver := func(o *everonce.Options) *everonce.TxReceiver[*sql.Tx] {
				r, err := everonce.NewTxReceiver[*sql.Tx](s, o)
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
			if err := receiver(opts.bound).Ready(ctx); err != nil {
				t.Fatal(err)
			}
			executed := 0
			deliver := func(r *everonce.TxReceiver[*sql.Tx]) error {
				tx, err := s.DB().BeginTx(ctx, nil)
				if err != nil {
					t.Fatal(err)
				}
				_, err = everonce.DoTx(ctx, tx, r, order("7"), func(context.Context) (int, error) {
					executed++
					return executed, nil
				})
				if commitErr := tx.Commit(); commitErr != nil {
					t.Errorf("the caller's commit: %v", commitErr)
				}
				return err
			}
			// Receivers that have not called Ready, as after a start.
			for range 2 {
				if err := deliver(receiver(opts.bound)); err != nil {
					t.Errorf("with the secret of the store: %v", err)
				}
				if err := deliver(receiver(opts.other)); !errors.Is(err, driver.ErrIdentity) {
					t.Errorf("with another: %v, want ErrIdentity", err)
				}
			}
			if executed != 1 {
				t.Errorf("the work ran %d times", executed)
			}
		})
	}
}
