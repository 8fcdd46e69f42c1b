package storeurl

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/mysqlstore"
	"github.com/everonce/everonce/store/pgxstore"
)

// connectTimeout bounds the first connection, where the URL sets no other bound.
const connectTimeout = 5 * time.Second

// maxConns is more than one command needs.
const maxConns = 2

func readPostgres(text string, opts Options, create bool) (Opener, error) {
	if _, err := url.Parse(text); err != nil { // its text may hold a part of the password, so the error omits it
		return nil, fmt.Errorf("%w: the PostgreSQL URL cannot be parsed; special characters in user and password must be percent-encoded", ErrURL)
	}
	cfg, err := pgxpool.ParseConfig(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrURL, err)
	}
	if !create && !opts.Works {
		cfg.MaxConns = maxConns
	}
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = connectTimeout
	}
	set := &pgxstore.Options{Schema: opts.Schema, TablePrefix: opts.TablePrefix}
	if err := set.Validate(); err != nil {
		return nil, err
	}
	return func(ctx context.Context) (Store, error) { return connectPostgres(ctx, cfg, set, create) }, nil
}

func connectPostgres(ctx context.Context, cfg *pgxpool.Config, set *pgxstore.Options, create bool) (*postgres, error) {
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", everonce.ErrStore, err)
	}
	s, err := pgxstore.New(pool, set)
	if err == nil {
		if err = pool.Ping(ctx); err != nil {
			err = fmt.Errorf("%w: %w", everonce.ErrStore, err)
		} else if create {
			err = migrate(ctx, s)
		}
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &postgres{Store: s, pool: pool}, nil
}

func migrate(ctx context.Context, s *pgxstore.Store) error {
	err := s.Migrate(ctx)
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Code == insufficientPrivilege {
		return fmt.Errorf("%w; if the tables exist, this role lacks rights on them; if not, a role that may create tables must run the output of \"everonce schema\"", err)
	}
	return err
}

const insufficientPrivilege = "42501"

// Schema returns the text that creates the tables of a PostgreSQL store. It connects to nothing.
func Schema(opts Options) (string, error) {
	return pgxstore.Schema(&pgxstore.Options{Schema: opts.Schema, TablePrefix: opts.TablePrefix})
}

// Nowhere returns a store of PostgreSQL, or of MariaDB and MySQL, that has no server, to be asked for texts.
func Nowhere(opts Options, ofMySQL bool) (driver.Store, error) {
	if ofMySQL {
		connector, err := mysql.NewConnector(mysql.NewConfig())
		if err != nil {
			return nil, err
		}
		return mysqlstore.New(sql.OpenDB(connector), &mysqlstore.Options{Database: opts.Schema, TablePrefix: opts.TablePrefix})
	}
	return pgxstore.NewSQL(sql.OpenDB(stdlib.GetConnector(pgx.ConnConfig{})), &pgxstore.Options{Schema: opts.Schema, TablePrefix: opts.TablePrefix})
}

// postgres closes its pool with it.
type postgres struct {
	*pgxstore.Store
	pool *pgxpool.Pool
}

func (p *postgres) Close() error {
	p.pool.Close()
	return nil
}
