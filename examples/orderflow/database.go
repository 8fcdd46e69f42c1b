package main

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"strings"

	_ "github.com/jackc/pgx/v5/stdlib" // for sql.Open

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/pgxstore"
	"github.com/everonce/everonce/store/sqlitestore"
)

// database is one service's own.
type database struct {
	*sql.DB
	receiver *everonce.TxReceiver[*sql.Tx]
	close    func() error
}

// openDatabase opens a SQLite file, or, by a URL, a schema of PostgreSQL, and runs statements that make its tables.
func openDatabase(ctx context.Context, place string, tables []string) (d *database, err error) {
	d = &database{}
	if strings.Contains(place, "://") {
		err = d.openPostgres(ctx, place)
	} else {
		err = d.openSQLite(ctx, place)
	}
	if err != nil {
		return nil, err
	}
	for _, text := range tables {
		if _, err := d.ExecContext(ctx, text); err != nil {
			return nil, errors.Join(err, d.close())
		}
	}
	return d, nil
}

func (d *database) openSQLite(ctx context.Context, file string) error {
	store, err := sqlitestore.Open(ctx, file, nil)
	if err != nil {
		return err
	}
	d.DB, d.close = store.DB(), store.Close
	d.receiver, err = everonce.NewTxReceiver(store, nil)
	return err
}

func (d *database) openPostgres(ctx context.Context, place string) (err error) {
	u, err := url.Parse(place)
	if err != nil {
		return errors.New("the URL of PostgreSQL cannot be read")
	}
	if d.DB, err = sql.Open("pgx", place); err != nil {
		return err
	}
	d.close = d.DB.Close
	store, err := pgxstore.NewSQL(d.DB, &pgxstore.Options{Schema: u.Query().Get("search_path")})
	if err != nil {
		return err
	}
	if err := store.Migrate(ctx); err != nil {
		return err
	}
	d.receiver, err = everonce.NewTxReceiver(store, nil)
	return err
}
