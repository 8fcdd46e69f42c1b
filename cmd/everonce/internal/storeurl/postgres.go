package storeurl

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/pgxstore"
)

// connectTimeout bounds the first connection, where the URL sets no other bound.
const connectTimeout = 5 * time.Second

// maxConns is more than one command needs.
const maxConns = 2

func openPostgres(ctx context.Context, text string, opts Options) (Store, error) {
	s, err := connectPostgres(ctx, text, opts, func(cfg *pgxpool.Config) { cfg.MaxConns = maxConns })
	if err != nil {
		return nil, err
	}
	return s, nil
}

// connectPostgres opens the store at a PostgreSQL URL, of whose pool adjust has the last word.
func connectPostgres(ctx context.Context, text string, opts Options, adjust func(*pgxpool.Config)) (*postgres, error) {
	u, err := url.Parse(text)
	if err != nil { // its text may hold a part of the password, so it is not told
		return nil, fmt.Errorf("%w: the PostgreSQL URL cannot be parsed; special characters in user and password must be percent-encoded", ErrURL)
	}
	hide := func(err error) error { return &secretError{err: err, secrets: secretsOf(u)} }
	cfg, err := pgxpool.ParseConfig(text)
	if err != nil {
		return nil, hide(fmt.Errorf("%w: %w", ErrURL, err))
	}
	adjust(cfg)
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = connectTimeout
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, hide(fmt.Errorf("%w: %w", everonce.ErrStore, err))
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, hide(fmt.Errorf("%w: %w", everonce.ErrStore, err))
	}
	s, err := pgxstore.New(pool, &pgxstore.Options{Schema: opts.Schema, TablePrefix: opts.TablePrefix})
	if err != nil {
		pool.Close()
		return nil, hide(err)
	}
	return &postgres{Store: s, pool: pool}, nil
}

// Schema returns the text that creates the tables of a PostgreSQL store. It connects to nothing.
func Schema(ctx context.Context, opts Options) (string, error) {
	pool, err := pgxpool.New(ctx, postgresScheme) // which connects when it is used, and it is not
	if err != nil {
		return "", err
	}
	defer pool.Close()
	s, err := pgxstore.New(pool, &pgxstore.Options{Schema: opts.Schema, TablePrefix: opts.TablePrefix})
	if err != nil {
		return "", err
	}
	return s.Schema(), nil
}

// minSecret is the length from which on a text is not found in another by chance.
const minSecret = 3

// secretsOf returns all that is secret in a URL, in every form in which it may come up again.
func secretsOf(u *url.URL) []string {
	var found []string
	add := func(secret string) {
		for _, form := range []string{secret, url.QueryEscape(secret), url.PathEscape(secret)} {
			if len(form) >= minSecret {
				found = append(found, form)
			}
		}
	}
	if password, ok := u.User.Password(); ok {
		add(password)
	}
	for _, name := range []string{"password", "sslpassword"} {
		add(u.Query().Get(name))
	}
	return found
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
