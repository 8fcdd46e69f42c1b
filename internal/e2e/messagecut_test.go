package e2e

import (
	"context"
	"errors"
	"net"
	"net/url"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/redis/rueidis"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/testserver"
	"github.com/everonce/everonce/store/pgxstore"
	"github.com/everonce/everonce/store/redisstore"
)

// lineCuts are what happens to the line between a consumer and its store, or its broker. Nothing comes through it but
// where it is slow (heard).
var lineCuts = []cut{
	{phase: "cut"},
	{phase: "half open, the answers are swallowed", way: answerWay, toxic: "timeout", amount: `"timeout":0`},
	{phase: "slow questions", way: requestWay, toxic: "slicer", amount: `"average_size":100,"size_variation":50,"delay":1000`, heard: true},
	{phase: "reset", way: answerWay, toxic: "reset_peer", amount: `"timeout":0`},
	{phase: "half open, the questions are swallowed", way: requestWay, toxic: "timeout", amount: `"timeout":0`},
	{phase: "cut in an answer", way: answerWay, toxic: "limit_data", amount: `"bytes":5`},
	{phase: "slow answers", way: answerWay, toxic: "latency", amount: `"latency":15,"jitter":10`, heard: true},
}

// cutOptions make a receiver give a store up soon that does not answer.
var cutOptions = &everonce.Options{Lease: e2eLease, StoreTimeout: 500 * time.Millisecond, TxTimeout: time.Second, CompletionTimeout: time.Second}

// The line to PostgreSQL is cut, slow, and half open in mid-stream: consumption pauses, without a busy loop, and goes
// on; each message takes effect once, and none is lost.
func TestMessagesCutFromPostgres(t *testing.T) {
	t.Parallel()
	t.Run("Transactional", func(t *testing.T) {
		t.Parallel()
		s := newCutStream(t, "rabbitmq", wayTx)
		proxy, near, far := postgresThrough(t, s)
		s.runTransactional(postgresStore(t, s, near), far, proxy)
	})
	t.Run("Guarded", func(t *testing.T) {
		t.Parallel()
		s := newCutStream(t, "rabbitmq", wayGuarded)
		proxy, near, _ := postgresThrough(t, s)
		s.runGuarded(postgresStore(t, s, near), proxy)
	})
}

// The same of the line to Redis.
func TestMessagesCutFromRedis(t *testing.T) {
	t.Parallel()
	s := newCutStream(t, "rabbitmq", wayGuarded)
	u, err := url.Parse(testserver.URL(t, "redis"))
	if err != nil {
		t.Fatal("the Redis URL does not parse")
	}
	proxy := poisoned(t, u.Host)
	u.Host = proxy.Listen
	opt, err := rueidis.ParseURL(u.String())
	if err != nil {
		t.Fatal(err)
	}
	opt.ForceSingleClient, opt.DisableCache = true, true
	opt.ConnWriteTimeout, opt.Dialer = time.Second, net.Dialer{Timeout: time.Second, KeepAlive: time.Second} // a line that is silent is given up
	client, err := rueidis.NewClient(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	store, err := redisstore.New(t.Context(), client, &redisstore.Options{KeyPrefix: s.spec.Queues + ":"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := store.DeleteScope(context.Background(), driver.DeleteScopeRequest{Scope: everonce.ScopeOf(s.way), Limit: 10_000}); err != nil {
			t.Error(err)
		}
	})
	s.runGuarded(store, proxy)
}

// The same of the line to each broker, for longer than the broker waits for its consumer: what comes again takes effect
// once. With -short the first three happen, for a short time, to one consumer of each broker.
func TestMessagesCutFromBroker(t *testing.T) {
	t.Parallel()
	eachBroker(t, func(t *testing.T, name string, _ brokerKind) {
		t.Run("Transactional", func(t *testing.T) {
			t.Parallel()
			s, proxy, pool := brokerThrough(t, name, wayTx)
			s.runTransactional(postgresStore(t, s, pool), pool, proxy)
		})
		t.Run("Guarded", func(t *testing.T) {
			if testing.Short() {
				t.Skip("the line is the same: without -short it is cut for both ways")
			}
			t.Parallel()
			s, proxy, pool := brokerThrough(t, name, wayGuarded)
			s.runGuarded(postgresStore(t, s, pool), proxy)
		})
	})
}

// brokerThrough returns a stream whose consumer reaches its broker by a line.
func brokerThrough(t *testing.T, kind, way string) (*cutStream, *toxiproxy.Proxy, *pgxpool.Pool) {
	t.Helper()
	s := newCutStream(t, kind, way)
	s.spec.Postgres = testserver.URL(t, "postgres")
	u, err := url.Parse(s.spec.Broker)
	if err != nil {
		t.Fatal("the broker's URL does not parse")
	}
	proxy := poisoned(t, u.Host)
	s.spec.Line = proxy.Listen
	if testing.Short() {
		s.cuts, s.cutFor = s.cuts[:3], 0
	}
	return s, proxy, s.spec.openSchema(t)
}

// runTransactional runs a consumer with a business row in the transaction.
func (s *cutStream) runTransactional(store driver.TxStore[pgx.Tx], far *pgxpool.Pool, proxy *toxiproxy.Proxy) {
	s.t.Helper()
	recv, err := everonce.NewTxReceiver(store, cutOptions)
	if err != nil {
		s.t.Fatal(err)
	}
	c, err := consume.NewTx(recv, consume.TxSpec[operation, pgx.Tx]{
		Consumer: s.way, Key: consume.ProducerID(), Retry: cutRetry, Observe: s.observe,
		Handle: func(ctx context.Context, tx pgx.Tx, _ *consume.Message, v operation) error {
			if _, err := tx.Exec(ctx, insertEffect, s.way, v.Op); err != nil {
				return err
			}
			return s.inHand(ctx, v.Op)
		},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.run(c, proxy)
	s.wantOnce(effectsOf(s.t, far))
}

// runGuarded runs a consumer whose effect is at a gateway that takes each downstream key once.
func (s *cutStream) runGuarded(store everonce.Store, proxy *toxiproxy.Proxy) {
	s.t.Helper()
	recv, err := everonce.NewReceiver(store, everonce.Reexecute, cutOptions)
	if err != nil {
		s.t.Fatal(err)
	}
	c, err := consume.New(recv, consume.Spec[operation]{
		Consumer: s.way, Key: consume.ProducerID(), Retry: cutRetry, Observe: s.observe,
		Handle: func(ctx context.Context, _ *consume.Message, v operation) error {
			attempt, ok := everonce.AttemptFrom(ctx)
			if !ok {
				return errors.New("there is no attempt")
			}
			s.charge(v.Op, attempt.DownstreamKey("charge"))
			return s.inHand(ctx, v.Op)
		},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.run(c, proxy)
	s.wantOnce(s.charged())
}

// postgresThrough returns a line to PostgreSQL, and two pools: one by that line, and one that nothing happens to.
func postgresThrough(t *testing.T, s *cutStream) (proxy *toxiproxy.Proxy, near, far *pgxpool.Pool) {
	t.Helper()
	s.spec.Postgres = testserver.URL(t, "postgres")
	far = s.spec.openSchema(t)
	u, err := url.Parse(s.spec.Postgres)
	if err != nil {
		t.Fatal("the PostgreSQL URL does not parse")
	}
	proxy = poisoned(t, u.Host)
	u.Host = proxy.Listen
	through := s.spec
	through.Postgres = u.String()
	cfg, err := through.poolConfig()
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.ConnectTimeout = time.Second // or one that hangs takes a place in the pool for two minutes
	if near, err = pgxpool.NewWithConfig(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(near.Close)
	return proxy, near, far
}

func postgresStore(t *testing.T, s *cutStream, pool *pgxpool.Pool) driver.TxStore[pgx.Tx] {
	t.Helper()
	store, err := pgxstore.New(pool, &pgxstore.Options{Schema: s.spec.Schema})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func effectsOf(t *testing.T, pool *pgxpool.Pool) map[int]int {
	t.Helper()
	rows, err := pool.Query(t.Context(), `SELECT op, count(*) FROM effect GROUP BY op`)
	if err != nil {
		t.Fatal(err)
	}
	effects := map[int]int{}
	var op, n int
	if _, err := pgx.ForEachRow(rows, []any{&op, &n}, func() error { effects[op] = n; return nil }); err != nil {
		t.Fatal(err)
	}
	return effects
}
