// Package settle is the demo's operator: it finds what is unknown, looks it up in the ledgers, and tells
// everonce what it found.
package settle

import (
	"context"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/sqlitestore"
)

// Settled counts what was unknown, by what the ledgers said of it.
type Settled struct {
	// Done were done, NotDone were not: mails, or whole payments where a proxy keeps the records.
	Done    int
	NotDone int
	// Finished are those of Done that a crash had left half done, charged and without a mail: the operator sent it.
	Finished int
}

// Unknown returns how many there were.
func (s Settled) Unknown() int { return s.Done + s.NotDone }

// Plus returns the sum of both.
func (s Settled) Plus(more Settled) Settled {
	return Settled{Done: s.Done + more.Done, NotDone: s.NotDone + more.NotDone, Finished: s.Finished + more.Finished}
}

// operator is who stands in the records as having settled them.
const operator = "demo operator"

// abandoned calls settle for every abandoned record of the store at path.
func abandoned(ctx context.Context, path string, settle func(store everonce.Store, rec *driver.Record) error) error {
	store, err := sqlitestore.Open(ctx, path, &sqlitestore.Options{NoMigrate: true})
	if err != nil {
		return err
	}
	defer store.Close() //nolint:errcheck // what was settled is durable
	list := driver.ListRequest{States: []driver.State{driver.StateAbandoned}}
	for {
		page, err := store.List(ctx, list)
		if err != nil {
			return err
		}
		for i := range page.Records {
			if err := settle(store, &page.Records[i]); err != nil {
				return err
			}
		}
		if page.Next == (everonce.RecordID{}) {
			return nil
		}
		list.After = page.Next
	}
}

// untilIdle waits until a program has nothing in work.
func untilIdle(ctx context.Context, busy func(context.Context) (int, error)) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		n, err := busy(ctx)
		if err != nil || n == 0 {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
