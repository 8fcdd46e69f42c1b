package main

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce/inbox"
	"github.com/everonce/everonce/outbox"
)

// patternBench is an outbox and an inbox in a separate schema, beside tables as a service would write them by hand.
type patternBench struct {
	*pgBench
	box *outbox.Outbox[pgx.Tx]
	in  *inbox.Inbox[pgx.Tx]
}

// payload is an event's, or a message's, of about 200 bytes.
var payload = []byte(`{"order":"order-4711","customer":"c-0815","currency":"EUR","cents":1999,"lines":[{"sku":"A-1","n":2},{"sku":"B-7","n":1}],"note":"` + strings.Repeat("x", 70) + `"}`)

func openPatterns(ctx context.Context, database string) (*patternBench, error) {
	pg, err := openPostgres(ctx, database)
	b := &patternBench{pgBench: pg}
	if err != nil {
		return b, err
	}
	if b.box, err = outbox.New(b.tx, nil); err != nil {
		return b, err
	}
	if b.in, err = inbox.New(b.tx, "billing", nil); err != nil {
		return b, err
	}
	if err := errors.Join(b.box.Migrate(ctx), b.in.Migrate(ctx)); err != nil {
		return b, err
	}
	return b, b.exec(`CREATE TABLE {s}.bare (seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id text NOT NULL UNIQUE, topic text NOT NULL,
			order_key text NOT NULL, type text NOT NULL, content_type text NOT NULL, headers text NOT NULL, payload bytea NOT NULL,
			state int NOT NULL DEFAULT 0, created_at timestamptz NOT NULL DEFAULT now(), done_at timestamptz);
		CREATE INDEX ON {s}.bare (seq) WHERE state = 0`)
}

// exec runs statements in which {s} is the schema.
func (b *patternBench) exec(text string) error {
	_, err := b.pool.Exec(context.Background(), strings.ReplaceAll(text, "{s}", b.schema))
	return err
}

// vacuum leaves no dead row of the turns before to the next.
func (b *patternBench) vacuum(table string) error { return b.exec("VACUUM ANALYZE {s}." + table) }

// patterns are the parts that take turns, and the latency.
func patterns(ctx context.Context) ([]*contest, []measured, func() error, error) {
	b, err := openPatterns(ctx, "")
	if err != nil {
		return nil, nil, nil, errors.Join(err, b.close())
	}
	appending, err := b.appending(ctx)
	if err != nil {
		return nil, nil, nil, errors.Join(err, b.close())
	}
	return []*contest{b.publishing(), b.relaying(), b.working(), appending}, []measured{&latency{b: b}}, b.close, nil
}

// longPatterns are the parts that take minutes.
func longPatterns(ctx context.Context, name string) ([]measured, func() error, error) {
	b, err := openPatterns(ctx, "")
	if err != nil {
		return nil, nil, errors.Join(err, b.close())
	}
	if name == "flat" {
		return []measured{&flat{b: b}}, b.close, nil
	}
	return []measured{&held{b: b}, &held{b: b, keys: heldKeys}}, b.close, nil
}

// silent takes no notice of what is logged.
var silent = slog.New(slog.DiscardHandler)

// events are n new ones; with keys, they have that many order keys.
func events(first int64, n, keys int) []outbox.Event {
	list := make([]outbox.Event, n)
	for i := range list {
		at := first*int64(n) + int64(i)
		list[i] = outbox.Event{ID: "event-" + strconv.FormatInt(at, 10), Topic: "orders", Type: "order.placed", Payload: payload}
		if keys > 0 {
			list[i].Key = "customer-" + strconv.FormatInt(at%int64(keys), 10)
		}
	}
	return list
}
