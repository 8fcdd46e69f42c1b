package main

import (
	"context"
	"database/sql"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/session"
	"github.com/everonce/everonce/session/sqlsession"
)

// sessionTables names the tables of client sessions.
const sessionTables = "session"

// clientSessions are the sessions beside a store, for any transaction type.
type clientSessions interface {
	Schema() string
	Purge(ctx context.Context, limit int) (removed int, err error)
}

func sessionsBeside(store driver.Store, lease time.Duration) (clientSessions, error) {
	switch s := store.(type) {
	case driver.TxStore[pgx.Tx]:
		return sessionsOf(s, lease)
	case driver.TxStore[*sql.Tx]:
		return sessionsOf(s, lease)
	}
	return nil, usagef("sessions are beside a store in SQLite, PostgreSQL, MariaDB or MySQL, and --store names another one")
}

func sessionsOf[Tx any](store driver.TxStore[Tx], lease time.Duration) (clientSessions, error) {
	r, err := everonce.NewTxReceiver(store, nil)
	if err != nil {
		return nil, err
	}
	return sqlsession.New(r, session.Config{Lease: lease}, nil)
}
