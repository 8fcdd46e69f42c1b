package consumers

import (
	"context"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/oncetest"
	"github.com/everonce/everonce/store/mongostore"
	"github.com/everonce/everonce/store/pgxstore"
	"github.com/everonce/everonce/store/sqlitestore"
)

// shelf is a database with a unique constraint on the shipment itself.
type shelf struct {
	insert func(ctx context.Context, name string) (inserted bool, err error)
	count  func(ctx context.Context, name string) (int, error)
}

// consumer ships by an insert that happens once without a record.
func (s shelf) consumer() build {
	return func(tb testing.TB, _ oncetest.Plan, effect func(context.Context, string, func() error) error) *shipping {
		tb.Helper()
		c, err := consume.NewNatural(consume.NaturalSpec[order]{
			Consumer: "shipping", Key: byTenant, Retry: retry,
			Handle: func(ctx context.Context, m *consume.Message, o order) (first bool, err error) {
				if err := refused(o); err != nil {
					return false, err
				}
				err = effect(ctx, nameOf(m), func() (err error) {
					first, err = s.insert(ctx, nameOf(m))
					return err
				})
				return first, err
			},
		})
		noErr(tb, err)
		return &shipping{consumer: c, shipped: s.count}
	}
}

func shipmentRow(name string) sqlitestore.Insert {
	return sqlitestore.Insert{Table: "shipment", Columns: []string{"id"}, Values: []any{name}, Key: []string{"id"}, Returning: []string{"id"}}
}

func shipmentRowPG(name string) pgxstore.Insert {
	r := shipmentRow(name)
	return pgxstore.Insert{Table: r.Table, Columns: r.Columns, Values: r.Values, Key: r.Key, Returning: r.Returning}
}

func scanID[Row interface{ Scan(dest ...any) error }](row Row) (id string, err error) {
	return id, row.Scan(&id)
}

// shelves are the stores with an insert-once function.
var shelves = []struct {
	name string
	open func(testing.TB) shelf
}{
	{"sqlitestore", func(tb testing.TB) shelf {
		db := openSQLite(tb).DB()
		return shelf{func(ctx context.Context, name string) (bool, error) {
			_, inserted, err := sqlitestore.InsertOnce(ctx, db, shipmentRow(name), scanID)
			return inserted, err
		}, countSQL(db, `SELECT count(*) FROM shipment WHERE id = ?`)}
	}},
	{"pgxstore", func(tb testing.TB) shelf {
		pool, db, _ := postgres(tb)
		return shelf{func(ctx context.Context, name string) (bool, error) {
			_, inserted, err := pgxstore.InsertOnce(ctx, pool, shipmentRowPG(name), scanID)
			return inserted, err
		}, countSQL(db, `SELECT count(*) FROM shipment WHERE id = $1`)}
	}},
	{"pgxstore through database sql", func(tb testing.TB) shelf {
		_, db, _ := postgres(tb)
		return shelf{func(ctx context.Context, name string) (bool, error) {
			_, inserted, err := pgxstore.InsertOnceSQL(ctx, db, shipmentRowPG(name), scanID)
			return inserted, err
		}, countSQL(db, `SELECT count(*) FROM shipment WHERE id = $1`)}
	}},
	{"mongostore", func(tb testing.TB) shelf {
		coll := mongoCollection(tb, mongodb(tb))
		index := mongostore.Index{Name: "shipment", Keys: bson.D{{Key: "shipment", Value: 1}}}
		noErr(tb, mongostore.EnsureIndex(tb.Context(), coll, index))
		shipments, err := mongostore.NewInserter(tb.Context(), coll, index)
		noErr(tb, err)
		return shelf{func(ctx context.Context, name string) (bool, error) {
			return shipments.InsertOnce(ctx, bson.D{{Key: "shipment", Value: name}})
		}, func(ctx context.Context, name string) (int, error) {
			n, err := coll.CountDocuments(ctx, bson.D{{Key: "shipment", Value: name}})
			return int(n), err
		}}
	}},
}

// TestNaturalConsumer holds a consumer whose effect is an insert under a unique constraint to the practice list, but
// for what needs a record: a known key with another amount.
func TestNaturalConsumer(t *testing.T) {
	t.Parallel()
	for _, at := range shelves {
		t.Run(at.name, func(t *testing.T) {
			t.Parallel()
			b := at.open(t).consumer()
			practice(t, func(testing.TB) build { return b }, oncetest.Subject{
				Mode: oncetest.Transactional, Capabilities: oncetest.Capabilities{Concurrency: true, Restarts: true},
			})
		})
	}
}

// TestNaturalConsumerOfAnUnrulyBroker: whatever the broker repeats, mixes up and forgets, each order is shipped once.
func TestNaturalConsumerOfAnUnrulyBroker(t *testing.T) {
	t.Parallel()
	for _, at := range shelves {
		t.Run(at.name, func(t *testing.T) {
			t.Parallel()
			at.open(t).consumer().broker(t, consume.Workers{}, 0, effectFails)
		})
	}
}
