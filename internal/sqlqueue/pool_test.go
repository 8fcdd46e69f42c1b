package sqlqueue

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/sqldb"
)

// hung is a database that answers no write, and looks at no context, until it is mended.
type hung struct {
	sqldb.Database
	mended chan struct{}
}

func (hung) Dialect() *sqldb.Dialect {
	return &sqldb.Dialect{Table: func(name string) string { return name }, Placeholder: func(int, sqldb.ArgKind) string { return "?" }}
}

func (h hung) Write(context.Context, func(context.Context, sqldb.Conn) error) error {
	<-h.mended
	return errors.New("the line is dead")
}

// Work ends with its lease, also while a renewal hangs in the database.
func TestWorkEndsWithItsLeaseWhileARenewalHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := hung{mended: make(chan struct{})}
		began := time.Now()
		p := Pool[Row]{
			Queue: New(db, Spec{Table: "outbox", Group: "topic", Lane: "topic"}),
			Row:   func(r *Row) (*Row, []any) { return r, nil },
			Lease: time.Minute,
			Work: func(ctx context.Context, _ int64, _ []Row) {
				defer close(db.mended)
				select {
				case <-ctx.Done():
				case <-time.After(2 * time.Minute):
				}
				if lost := context.Cause(ctx); !errors.Is(lost, driver.ErrLeaseLost) || time.Since(began) != time.Minute {
					t.Errorf("%v after %v, want the lease lost after a minute", lost, time.Since(began))
				}
			},
		}
		p.leased(t.Context(), 1, []Row{{Seq: 1}}, began)
	})
}
