package consumers

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/oncetest"
	"github.com/everonce/everonce/store/mongostore"
)

// ledger is a database that holds the records, and the application's own table of shipments.
type ledger[Tx any] struct {
	store  driver.TxStore[Tx]
	insert func(ctx context.Context, tx Tx, name string) error
	count  func(ctx context.Context, name string) (int, error)
}

// consumer ships by a row, which commits with the record. change, if not nil, changes the receiver's options.
func (l ledger[Tx]) consumer(change func(*everonce.Options)) build {
	return l.over(change, oncetest.FaultTxStore[Tx])
}

// asItIs is consumer on the unchanged store, with the optional powers of its transactions, and without faults.
func (l ledger[Tx]) asItIs() build {
	return l.over(nil, func(s driver.TxStore[Tx], _ oncetest.Plan) driver.TxStore[Tx] { return s })
}

func (l ledger[Tx]) over(change func(*everonce.Options), wrap func(driver.TxStore[Tx], oncetest.Plan) driver.TxStore[Tx]) build {
	return func(tb testing.TB, plan oncetest.Plan, effect func(context.Context, string, func() error) error) *shipping {
		tb.Helper()
		opts := &everonce.Options{TxRetries: 4}
		if change != nil {
			change(opts)
		}
		recv, err := everonce.NewTxReceiver(wrap(l.store, plan), opts)
		noErr(tb, err)
		c, err := consume.NewTx(recv, consume.TxSpec[order, Tx]{
			Consumer: "shipping", Key: byTenant, Retry: retry,
			Handle: func(ctx context.Context, tx Tx, m *consume.Message, o order) error {
				if err := refused(o); err != nil {
					return err
				}
				return effect(ctx, nameOf(m), func() error { return l.insert(ctx, tx, nameOf(m)) })
			},
		})
		noErr(tb, err)
		return &shipping{consumer: c, shipped: l.count}
	}
}

func countSQL(db *sql.DB, query string) func(context.Context, string) (int, error) {
	return func(ctx context.Context, name string) (n int, err error) {
		return n, db.QueryRowContext(ctx, query, name).Scan(&n)
	}
}

func insertSQL(query string) func(context.Context, *sql.Tx, string) error {
	return func(ctx context.Context, tx *sql.Tx, name string) error {
		_, err := tx.ExecContext(ctx, query, name)
		return err
	}
}

func onSQLite(tb testing.TB) ledger[*sql.Tx] {
	tb.Helper()
	store := openSQLite(tb)
	return ledger[*sql.Tx]{store, insertSQL(`INSERT INTO ledger VALUES (?)`), countSQL(store.DB(), `SELECT count(*) FROM ledger WHERE shipment = ?`)}
}

func onPostgres(tb testing.TB) ledger[pgx.Tx] {
	tb.Helper()
	store, pool := openPostgres(tb)
	return ledger[pgx.Tx]{
		store,
		func(ctx context.Context, tx pgx.Tx, name string) error {
			_, err := tx.Exec(ctx, `INSERT INTO ledger VALUES ($1)`, name)
			return err
		},
		func(ctx context.Context, name string) (n int, err error) {
			return n, pool.QueryRow(ctx, `SELECT count(*) FROM ledger WHERE shipment = $1`, name).Scan(&n)
		},
	}
}

func onPostgresSQL(tb testing.TB) ledger[*sql.Tx] {
	tb.Helper()
	store, db := openPostgresSQL(tb)
	return ledger[*sql.Tx]{store, insertSQL(`INSERT INTO ledger VALUES ($1)`), countSQL(db, `SELECT count(*) FROM ledger WHERE shipment = $1`)}
}

// onMongoDB needs a server with transactions, which the one of scripts/services has not.
func onMongoDB(t *testing.T) ledger[*mongo.Session] {
	t.Helper()
	db := mongodb(t)
	var is struct {
		Set    string `bson:"setName"`
		Router string `bson:"msg"`
	}
	noErr(t, db.RunCommand(t.Context(), bson.D{{Key: "isMaster", Value: 1}}).Decode(&is))
	if is.Set == "" && is.Router != "isdbgrid" {
		t.Skip("a transactional consumer on mongostore.TxStore: the server has no transactions; EVERONCE_TEST_MONGODB_URL has to name a replica set")
	}
	shipments := mongoCollection(t, db)
	noErr(t, db.CreateCollection(t.Context(), shipments.Name()))
	store, err := mongostore.NewTx(t.Context(), db, &mongostore.Options{Collection: mongoCollection(t, db).Name()})
	noErr(t, err)
	return ledger[*mongo.Session]{
		store,
		func(ctx context.Context, tx *mongo.Session, name string) error {
			_, err := shipments.InsertOne(mongo.NewSessionContext(ctx, tx), bson.D{{Key: "name", Value: name}})
			return err
		},
		func(ctx context.Context, name string) (int, error) {
			n, err := shipments.CountDocuments(ctx, bson.D{{Key: "name", Value: name}})
			return int(n), err
		},
	}
}

func transactional(t *testing.T, b build) {
	t.Helper()
	practice(t, func(testing.TB) build { return b }, oncetest.Subject{
		Mode: oncetest.Transactional, Lease: time.Second, // a transaction has none: it is how long to wait where one is in the way
		Capabilities: oncetest.Capabilities{Fingerprints: true, StoreFaults: true, Concurrency: true, Restarts: true},
	})
}

// TestTransactionalConsumer holds a consumer whose effect is a row in the database of its records to the practice list,
// on every store that has transactions.
func TestTransactionalConsumer(t *testing.T) {
	t.Parallel()
	t.Run("sqlitestore", func(t *testing.T) { t.Parallel(); transactional(t, onSQLite(t).consumer(nil)) })
	t.Run("pgxstore", func(t *testing.T) { t.Parallel(); transactional(t, onPostgres(t).consumer(nil)) })
	t.Run("pgxstore, optimistic", func(t *testing.T) {
		t.Parallel()
		transactional(t, onPostgres(t).consumer(func(o *everonce.Options) { o.Optimistic = true }))
	})
	t.Run("pgxstore through database sql", func(t *testing.T) { t.Parallel(); transactional(t, onPostgresSQL(t).consumer(nil)) })
	t.Run("mongostore", func(t *testing.T) { t.Parallel(); transactional(t, onMongoDB(t).consumer(nil)) })
	t.Run("dynamostore", func(t *testing.T) { t.Parallel(); transactional(t, onDynamoDB(t).consumer(nil)) })
}

func unruly[Tx any](t *testing.T, l ledger[Tx]) {
	t.Helper()
	l.consumer(nil).broker(t, consume.Workers{}, storeFails, effectFails)
}

// TestTransactionalConsumerOfAnUnrulyBroker: whatever the broker repeats, mixes up and forgets, and though statements,
// commits and handlers fail, each order is shipped once.
func TestTransactionalConsumerOfAnUnrulyBroker(t *testing.T) {
	t.Parallel()
	t.Run("sqlitestore", func(t *testing.T) { t.Parallel(); unruly(t, onSQLite(t)) })
	t.Run("pgxstore", func(t *testing.T) { t.Parallel(); unruly(t, onPostgres(t)) })
	t.Run("pgxstore through database sql", func(t *testing.T) { t.Parallel(); unruly(t, onPostgresSQL(t)) })
	t.Run("mongostore", func(t *testing.T) { t.Parallel(); unruly(t, onMongoDB(t)) })
	t.Run("dynamostore", func(t *testing.T) { t.Parallel(); unruly(t, onDynamoDB(t)) })
}

func inBatches[Tx any](t *testing.T, l ledger[Tx]) {
	t.Helper()
	l.consumer(nil).broker(t, consume.Workers{Concurrency: 4, Batch: 8}, storeFails/3, effectFails/2)
}

func inWholeBatches[Tx any](t *testing.T, l ledger[Tx]) {
	t.Helper()
	l.asItIs().broker(t, consume.Workers{Concurrency: 4, Batch: 8}, 0, effectFails/2)
}

// TestBatchesOfAnUnrulyBroker: the same for messages that share a transaction.
func TestBatchesOfAnUnrulyBroker(t *testing.T) {
	t.Parallel()
	t.Run("sqlitestore", func(t *testing.T) { t.Parallel(); inBatches(t, onSQLite(t)) })
	t.Run("pgxstore", func(t *testing.T) { t.Parallel(); inBatches(t, onPostgres(t)) })
	t.Run("pgxstore through database sql", func(t *testing.T) { t.Parallel(); inBatches(t, onPostgresSQL(t)) })
	t.Run("mongostore", func(t *testing.T) { t.Parallel(); inBatches(t, onMongoDB(t)) })
}

// TestWholeBatchesOfAnUnrulyBroker: the same where the store claims and records a batch by one statement each, which
// faults of single statements would hide.
func TestWholeBatchesOfAnUnrulyBroker(t *testing.T) {
	t.Parallel()
	t.Run("sqlitestore", func(t *testing.T) { t.Parallel(); inWholeBatches(t, onSQLite(t)) })
	t.Run("pgxstore", func(t *testing.T) { t.Parallel(); inWholeBatches(t, onPostgres(t)) })
	t.Run("pgxstore through database sql", func(t *testing.T) { t.Parallel(); inWholeBatches(t, onPostgresSQL(t)) })
	t.Run("mongostore", func(t *testing.T) { t.Parallel(); inWholeBatches(t, onMongoDB(t)) })
}
