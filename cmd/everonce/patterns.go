package main

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/backlog"
	"github.com/everonce/everonce/cmd/everonce/internal/inspect"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/inbox"
	"github.com/everonce/everonce/outbox"
)

// pattern is what has a table beside a store's, and a set of commands.
type pattern struct {
	name, entry string // of the commands, and of what is in the table: "outbox", "event"
	kind        string // what [backlog.Filter.Kind] is called: "topic"
	short, long string
	consumers   bool // each consumer has a part of the table
}

var patterns = []*pattern{
	{
		name: "outbox", entry: "event", kind: "topic",
		short: "Show, retry, discard and publish the events of an outbox",
		long: `outbox shows the events that wait in an outbox, or were set aside, has them published
again, or gives them up. "outbox relay" publishes them, in place of a relay in the service.`,
	},
	{
		name: "inbox", entry: "message", kind: "type", consumers: true,
		short: "Show, retry and discard the messages of an inbox",
		long: `inbox shows the messages of a consumer that wait in its inbox, or were set aside, has them
handled again, or gives them up. --consumer is its name, as the service gave it.`,
	},
}

// beside is a pattern's table beside a store, whatever transactions the store's application has.
type beside struct {
	backlog *backlog.Table
	schema  func() string
	// content reads what an entry holds, and its headers and payload if they are asked for, into it.
	content func(ctx context.Context, e *inspect.Entry, asked bool) error
	relay   func(outbox.Publisher, *outbox.RelayOptions) (*outbox.Relay, error) // of an outbox
}

// of returns the table beside a store. Without a consumer, where there are some, it is for what concerns all of them.
func (p *pattern) of(store driver.Store, consumer string) (*beside, error) {
	switch s := store.(type) {
	case driver.TxStore[pgx.Tx]:
		return besideOf(p, s, consumer)
	case driver.TxStore[*sql.Tx]:
		return besideOf(p, s, consumer)
	}
	return nil, usagef("an %s is beside a store in SQLite or PostgreSQL, and --store names another one", p.name)
}

func besideOf[Tx any](p *pattern, store driver.TxStore[Tx], consumer string) (*beside, error) {
	r, err := everonce.NewTxReceiver(store, nil)
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
			if err == nil {
				e.Type = event.Type
				e.Content = inspect.ContentOf("", event.ContentType, event.Headers, event.Payload, asked)
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
		if err == nil {
			e.Content = inspect.ContentOf(m.Source, m.ContentType, m.Headers, m.Body, asked)
		}
		return err
	}}, nil
}

// patternNames are the names of the patterns.
func patternNames() (names []string) {
	for _, p := range patterns {
		names = append(names, p.name)
	}
	return names
}

// patternOf returns the pattern of a name.
func patternOf(name string) (*pattern, error) {
	for _, p := range patterns {
		if p.name == name {
			return p, nil
		}
	}
	return nil, fmt.Errorf("there is no %q; there are %s", name, strings.Join(patternNames(), " and "))
}
