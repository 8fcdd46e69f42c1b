// Command callertx imports a file of bookings in one transaction that it begins itself: every line of it is an
// operation with its own key, and all of them commit together or not at all.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/sqlitestore"
)

// Line is one booking of the file.
type Line struct {
	ID    string
	Cents int64
}

// importFile books what was not booked before, and counts it.
func importFile(ctx context.Context, db *sql.DB, r *everonce.TxReceiver[*sql.Tx], lines []Line) (booked, skipped int, err error) {
	tx, err := db.BeginTx(ctx, nil) // store.DB() begins IMMEDIATE, as DoTx needs it
	if err != nil {
		return 0, 0, err
	}
	defer tx.Rollback() //nolint:errcheck // after the commit there is nothing left to roll back
	for _, line := range lines {
		key := everonce.Key{Scope: everonce.ScopeOf("bank", "import"), ID: line.ID}
		res, err := everonce.DoTx(ctx, tx, r, key, func(ctx context.Context) (struct{}, error) {
			_, err := tx.ExecContext(ctx, `UPDATE total SET cents = cents + ?`, line.Cents)
			return struct{}{}, err
		}, everonce.FingerprintOf(line.Cents))
		if err != nil {
			return 0, 0, fmt.Errorf("line %s: %w", line.ID, err) // rolls everything back
		}
		if res.Outcome == everonce.Executed {
			booked++
		} else {
			skipped++
		}
	}
	return booked, skipped, tx.Commit()
}

func main() {
	dir, err := os.MkdirTemp("", "everonce-callertx-")
	if err != nil {
		log.Fatal(err)
	}
	err = run(context.Background(), os.Stdout, filepath.Join(dir, "bank.db"))
	if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer, file string) (err error) {
	store, err := sqlitestore.Open(ctx, file, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	receiver, err := everonce.NewTxReceiver(store, nil)
	if err != nil {
		return err
	}
	db := store.DB()
	for _, text := range []string{`CREATE TABLE total (cents INTEGER NOT NULL)`, `INSERT INTO total VALUES (0)`} {
		if _, err := db.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	for _, f := range []struct {
		name  string
		lines []Line
	}{
		{"monday", []Line{{"a", 100}, {"b", 200}}},
		{"monday, again", []Line{{"a", 100}, {"b", 200}}},
		{"tuesday, with a line of monday in it", []Line{{"b", 200}, {"c", 300}}},
		{"wednesday, with a changed line", []Line{{"d", 400}, {"c", 999}}},
		{"wednesday, corrected", []Line{{"d", 400}, {"c", 300}}},
	} {
		booked, skipped, err := importFile(ctx, db, receiver, f.lines)
		var total int64
		if err := db.QueryRowContext(ctx, `SELECT cents FROM total`).Scan(&total); err != nil {
			return err
		}
		switch {
		case errors.Is(err, everonce.ErrMismatch):
			fmt.Fprintf(out, "%s: refused, a line has changed; total %d\n", f.name, total)
		case err != nil:
			return err
		default:
			fmt.Fprintf(out, "%s: %d booked, %d skipped; total %d\n", f.name, booked, skipped, total)
		}
	}
	return nil
}
