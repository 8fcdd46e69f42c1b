package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"net/url"
	"strings"
)

// makeSchemas makes a schema of a PostgreSQL server for each service, which stands for a separate database, and fills
// in their URLs.
func makeSchemas(ctx context.Context, server string, places map[string]string) (remove func() error, err error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, errors.New("the URL of PostgreSQL cannot be read")
	}
	admin, err := sql.Open("pgx", server)
	if err != nil {
		return nil, err
	}
	prefix := "orderflow_" + strings.ToLower(rand.Text()[:10]) + "_"
	remove = func() (err error) {
		for name := range places {
			_, dropped := admin.ExecContext(context.WithoutCancel(ctx), `DROP SCHEMA IF EXISTS `+prefix+name+` CASCADE`)
			err = errors.Join(err, dropped)
		}
		return errors.Join(err, admin.Close())
	}
	for _, name := range names {
		query := u.Query()
		query.Set("search_path", prefix+name)
		own := *u
		own.RawQuery = query.Encode()
		places[name] = own.String()
		if _, err := admin.ExecContext(ctx, `CREATE SCHEMA `+prefix+name); err != nil {
			return nil, errors.Join(err, remove())
		}
	}
	return remove, nil
}
