package sqlqueue

import (
	"context"
	"errors"
	"log/slog"
	"strings"
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

// slowLook is a database without rows in which a look for rows that no claim finds takes long.
type slowLook struct {
	sqldb.Database
	claims chan time.Time
}

func (slowLook) Dialect() *sqldb.Dialect {
	d := hung{}.Dialect()
	d.AnyType = true
	return d
}

func (slowLook) Read(_ context.Context, calls ...*sqldb.Call) error {
	if strings.Contains(calls[0].Statement.Name, "odd") {
		time.Sleep(time.Second)
	}
	return nil
}

func (s slowLook) Write(context.Context, func(context.Context, sqldb.Conn) error) error {
	s.claims <- time.Now()
	return nil
}

// A long look for rows that no claim finds delays no row: a pool that is woken claims at once.
func TestAPoolIsWokenDuringALongLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := slowLook{claims: make(chan time.Time, 100)}
		p := Pool[Row]{
			Queue: New(db, Spec{Table: "outbox", Group: "topic", Lane: "topic"}), Row: func(r *Row) (*Row, []any) { return r, nil },
			Size: 10, Batch: 10, Lease: time.Minute, Poll: time.Minute, Retention: -1, Log: slog.New(slog.DiscardHandler),
		}
		p.Start()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); p.Run(ctx) }()
		for range 10 {
			time.Sleep(300 * time.Millisecond)
			for len(db.claims) > 0 {
				<-db.claims
			}
			woken := time.Now()
			p.Wake()
			if took := (<-db.claims).Sub(woken); took > 10*time.Millisecond {
				t.Errorf("it claimed after %v", took)
			}
		}
		stop()
		<-done
	})
}
