package consumers

import (
	"context"
	"crypto/rand"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/rueidis"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/everonce/everonce/internal/testing/testserver"
	"github.com/everonce/everonce/store/pgxstore"
	"github.com/everonce/everonce/store/sqlitestore"
)

func noErr(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// tables are the ledger that allows a shipment any number of times, and the one that allows it once.
const tables = `CREATE TABLE ledger (shipment TEXT NOT NULL); CREATE TABLE shipment (id TEXT PRIMARY KEY)`

func openSQLite(tb testing.TB) *sqlitestore.Store {
	tb.Helper()
	store, err := sqlitestore.Open(tb.Context(), filepath.Join(tb.TempDir(), "shop.db"), nil)
	noErr(tb, err)
	tb.Cleanup(func() { noErr(tb, store.Close()) })
	for _, statement := range strings.Split(tables, ";") {
		_, err := store.DB().ExecContext(tb.Context(), statement)
		noErr(tb, err)
	}
	return store
}

// postgres is a schema of one test's own.
func postgres(tb testing.TB) (pool *pgxpool.Pool, db *sql.DB, schema string) {
	tb.Helper()
	cfg, err := pgxpool.ParseConfig(testserver.URL(tb, "postgres"))
	if err != nil {
		tb.Fatal("the PostgreSQL URL does not parse")
	}
	schema = "consumers_" + strings.ToLower(rand.Text())
	cfg.ConnConfig.RuntimeParams["search_path"] = schema
	cfg.MaxConns = 12
	pool, err = pgxpool.NewWithConfig(tb.Context(), cfg)
	noErr(tb, err)
	_, err = pool.Exec(tb.Context(), `CREATE SCHEMA `+schema)
	noErr(tb, err)
	db = stdlib.OpenDB(*cfg.ConnConfig)
	db.SetMaxOpenConns(12)
	tb.Cleanup(func() {
		noErr(tb, db.Close())
		_, err := pool.Exec(context.Background(), `DROP SCHEMA `+schema+` CASCADE`)
		noErr(tb, err)
		pool.Close()
	})
	_, err = pool.Exec(tb.Context(), tables)
	noErr(tb, err)
	return pool, db, schema
}

func openPostgres(tb testing.TB) (*pgxstore.Store, *pgxpool.Pool) {
	tb.Helper()
	pool, _, schema := postgres(tb)
	store, err := pgxstore.New(pool, &pgxstore.Options{Schema: schema})
	noErr(tb, err)
	noErr(tb, store.Migrate(tb.Context()))
	return store, pool
}

func openPostgresSQL(tb testing.TB) (*pgxstore.SQLStore, *sql.DB) {
	tb.Helper()
	_, db, schema := postgres(tb)
	store, err := pgxstore.NewSQL(db, &pgxstore.Options{Schema: schema})
	noErr(tb, err)
	noErr(tb, store.Migrate(tb.Context()))
	return store, db
}

func redis(tb testing.TB) rueidis.Client {
	tb.Helper()
	opt, err := rueidis.ParseURL(testserver.URL(tb, "redis"))
	noErr(tb, err)
	client, err := rueidis.NewClient(opt)
	noErr(tb, err)
	tb.Cleanup(client.Close)
	return client
}

// redisPrefix begins keys of a test's own, which are gone after it.
func redisPrefix(tb testing.TB, client rueidis.Client) string {
	tb.Helper()
	prefix := "consumers-" + rand.Text() + ":"
	tb.Cleanup(func() {
		for cursor := uint64(0); ; {
			page, err := client.Do(context.Background(), client.B().Scan().Cursor(cursor).Match(prefix+"*").Count(1000).Build()).AsScanEntry()
			noErr(tb, err)
			if len(page.Elements) > 0 {
				noErr(tb, client.Do(context.Background(), client.B().Unlink().Key(page.Elements...).Build()).Error())
			}
			if cursor = page.Cursor; cursor == 0 {
				return
			}
		}
	})
	return prefix
}

func mongodb(tb testing.TB) *mongo.Database {
	tb.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(testserver.URL(tb, "mongodb")))
	noErr(tb, err)
	tb.Cleanup(func() { noErr(tb, client.Disconnect(context.Background())) })
	return client.Database("everonce_test")
}

// mongoCollection is a collection of a test's own.
func mongoCollection(tb testing.TB, db *mongo.Database) *mongo.Collection {
	tb.Helper()
	coll := db.Collection("consumers_" + rand.Text())
	tb.Cleanup(func() { noErr(tb, coll.Drop(context.Background())) })
	return coll
}
