package main

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/backlog"
	"github.com/everonce/everonce/cmd/everonce/internal/inspect"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/inbox"
	"github.com/everonce/everonce/outbox"
	"github.com/everonce/everonce/saga"
)

// pattern is a package that has a table beside a store's, and a set of commands.
type pattern struct {
	name, entry string // of the commands, and of an entry in the table: "outbox", "event"
	kind        string // what [backlog.Filter.Kind] is called: "topic"
	short, long string
	keep        time.Duration // default retention of finished entries
	consumers   bool          // each consumer has its part of the table
}

var patterns = []*pattern{
	{
		name: "outbox", entry: "event", kind: "topic", keep: 24 * time.Hour,
		short: "Show, retry, discard and publish the events of an outbox",
		long: `outbox shows the events that wait in an outbox or were set aside, publishes them again,
or gives them up. "outbox relay" publishes them, in place of a relay in the service.`,
	},
	{
		name: "inbox", entry: "message", kind: "type", keep: 24 * time.Hour, consumers: true,
		short: "Show, retry and discard the messages of an inbox",
		long: `inbox shows the messages of a consumer that wait in its inbox or were set aside, has them
handled again, or gives them up. --consumer is its name, as the service gave it.`,
	},
	{
		name: "saga", entry: "saga", kind: "definition", keep: 90 * 24 * time.Hour,
		short: "Show, retry, abort and discard sagas",
		long: `saga shows the progress of sagas, and continues those that wait for an operator: "retry"
tries again what failed, "skip" marks a compensation as done that was made by hand, "abort"
has a saga compensated. A definition is its name and version: fulfilment@1.`,
	},
}

// beside is a pattern's table beside a store, for any transaction type.
type beside struct {
	backlog *backlog.Table
	schema  func() string
	// content reads an entry's content into e, with headers and payload if asked is set.
	content func(ctx context.Context, e *inspect.Entry, asked bool) error
	relay   func(outbox.Publisher, *outbox.RelayOptions) (*outbox.Relay, error) // of an outbox
	abort   func(ctx context.Context, id string) error                          // of sagas, like skip
	skip    func(ctx context.Context, id, step string) error
}

// of returns the table beside a store. opts may have the identity secret. Without a consumer, an inbox's table has only
// the operations that concern all consumers.
func (p *pattern) of(store driver.Store, consumer string, opts *everonce.Options) (*beside, error) {
	switch s := store.(type) {
	case driver.TxStore[pgx.Tx]:
		return besideOf(p, s, consumer, opts)
	case driver.TxStore[*sql.Tx]:
		return besideOf(p, s, consumer, opts)
	}
	return nil, usagef("an %s is beside a store in SQLite, PostgreSQL, MariaDB or MySQL, and --store names another one", p.name)
}

func besideOf[Tx any](p *pattern, store driver.TxStore[Tx], consumer string, opts *everonce.Options) (*beside, error) {
	r, err := everonce.NewTxReceiver(store, opts)
	if err != nil {
		return nil, err
	}
	switch {
	case p.name == "outbox":
		box, err := outbox.New(r, nil)
		if err != nil {
			return nil, err
		}
		return &beside{backlog: box.Backlog(), schema: box.Schema, relay: box.Relay, content: func(ctx context.Context, e *inspect.Entry, asked bool) error {
			event, err := box.Get(ctx, e.ID)
			if event != nil {
				e.Type = event.Type
				e.Content = inspect.ContentOf("", event.ContentType, event.Headers, event.Payload, asked)
			}
			return err
		}}, nil
	case p.name == "saga":
		sagas, err := saga.New(r)
		if err != nil {
			return nil, err
		}
		return &beside{backlog: sagas.Backlog(), schema: sagas.Schema, abort: sagas.Abort, skip: sagas.Skip, content: func(ctx context.Context, e *inspect.Entry, asked bool) error {
			s, err := sagas.Get(ctx, e.ID)
			if s != nil {
				e.Saga = inspect.SagaOf(s, asked)
				e.Content = inspect.ContentOf("", "application/json", nil, s.Input, asked)
			}
			return err
		}}, nil
	case consumer == "":
		all, err := inbox.All(r)
		return &beside{backlog: all}, err
	}
	in, err := inbox.New(r, consumer, nil)
	if err != nil {
		return nil, err
	}
	return &beside{backlog: in.Backlog(), schema: in.Schema, content: func(ctx context.Context, e *inspect.Entry, asked bool) error {
		m, err := in.Get(ctx, e.ID)
		if m != nil {
			e.Content = inspect.ContentOf(m.Source, m.ContentType, m.Headers, m.Body, asked)
		}
		return err
	}}, nil
}

// patternNames returns the names of the patterns.
func patternNames() (names []string) {
	for _, p := range patterns {
		names = append(names, p.name)
	}
	return names
}

// patternOf returns the pattern with a name.
func patternOf(name string) (*pattern, error) {
	for _, p := range patterns {
		if p.name == name {
			return p, nil
		}
	}
	return nil, fmt.Errorf("there is no %q; there are %s", name, strings.Join(patternNames(), ", "))
}
