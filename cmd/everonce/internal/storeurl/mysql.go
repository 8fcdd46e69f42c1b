package storeurl

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/mysqlstore"
)

func readMySQL(text string, opts Options, create bool) (Opener, error) {
	config, err := mysqlstore.ParseURL(text)
	if err != nil { // its text may hold a part of the password, so the error only says what is wrong
		return nil, fmt.Errorf("%w: %w", ErrURL, err)
	}
	if config.DBName == "" && opts.Schema == "" {
		return nil, fmt.Errorf("%w: it names no database", ErrURL)
	}
	if config.Timeout == 0 {
		config.Timeout = connectTimeout
	}
	// MySQL, which cannot claim without waiting, waits as short as it can.
	if config.Params == nil {
		config.Params = make(map[string]string, 1)
	}
	if config.Params["innodb_lock_wait_timeout"] == "" {
		config.Params["innodb_lock_wait_timeout"] = "1"
	}
	set := &mysqlstore.Options{Database: opts.Schema, TablePrefix: opts.TablePrefix}
	if err := set.Validate(); err != nil {
		return nil, err
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrURL, err)
	}
	return func(ctx context.Context) (Store, error) {
		db := sql.OpenDB(connector)
		if !create && !opts.Works {
			db.SetMaxOpenConns(maxConns)
		}
		return connectMySQL(ctx, db, set, create)
	}, nil
}

func connectMySQL(ctx context.Context, db *sql.DB, set *mysqlstore.Options, create bool) (*mySQL, error) {
	s, err := mysqlstore.New(db, set)
	if err == nil {
		if err = db.PingContext(ctx); err != nil {
			err = fmt.Errorf("%w: %w", everonce.ErrStore, err)
		} else if create {
			err = s.Migrate(ctx)
		}
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &mySQL{Store: s, db: db}, nil
}

// SchemaMySQL is [Schema] of a MariaDB or MySQL store.
func SchemaMySQL(opts Options) (string, error) {
	return mysqlstore.Schema(&mysqlstore.Options{Database: opts.Schema, TablePrefix: opts.TablePrefix})
}

// mySQL closes its handle with it.
type mySQL struct {
	*mysqlstore.Store
	db *sql.DB
}

func (m *mySQL) Close() error { return m.db.Close() }
