package patterntest

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/outbox"
	"github.com/everonce/everonce/saga"
	"github.com/everonce/everonce/session"
)

// On PostgreSQL the patterns commit durably whatever the session's synchronous_commit says, and do not fail for each
// other's sake where its default isolation is serializable.
func TestPostgresSettings(t *testing.T) {
	t.Parallel()
	const lent = "default_transaction_isolation=serializable&synchronous_commit=off&pool_max_conns=16"
	t.Run("pgx", func(t *testing.T) {
		t.Parallel()
		url, name := schema(t)
		h := pgxHandle(t, with(url, lent), name)
		h.ready(t)
		testPostgresSettings[pgx.Tx](t, h, name)
	})
	t.Run("sql", func(t *testing.T) {
		t.Parallel()
		url, name := schema(t)
		db, err := sql.Open("pgx", with(url, "default_transaction_isolation=serializable&synchronous_commit=off"))
		must(t, err)
		t.Cleanup(func() { db.Close() })
		db.SetMaxOpenConns(16)
		testPostgresSettings[*sql.Tx](t, postgresHandle(t, db, name), name)
	})
}

func testPostgresSettings[Tx any](t *testing.T, h *handle[Tx], name string) {
	ctx := t.Context()
	box, in, sagas := newOutbox(t, h), newInbox(t, h, nil), newSagas(t, h)
	order, err := saga.Define("order", 1, orderSteps(h, &world{})...)
	must(t, err)
	sessions, streams := newSessions(t, h, session.Config{}, nil), newStreams(t, h, nil)
	tables := []string{"outbox", "inbox", "saga", "session", "session_answer", "session_state", "producer", "producer_log", "producer_window", "producer_stream"}
	h.must(t, "CREATE TABLE seen (at text, what text)")
	h.must(t, "CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO "+name+".seen VALUES (TG_TABLE_NAME, current_setting('synchronous_commit')); RETURN NULL; END $$")
	for _, table := range tables {
		h.must(t, "CREATE CONSTRAINT TRIGGER see AFTER INSERT OR UPDATE OR DELETE ON everonce_"+table+" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION see()")
	}
	var group sync.WaitGroup
	for i := range 24 {
		group.Go(func() {
			n := strconv.Itoa(i)
			nonce := anyNonce()
			a, err := sessions.Apply(ctx, &session.Command{Op: session.Register, Nonce: nonce}, nil)
			if err != nil || a.Err != 0 {
				t.Errorf("register: %v, %v", a.Err, err)
				return
			}
			request := requestOf(a.Session, nonce, 1, n)
			applied, applyErr := sessions.Apply(ctx, &request, sessions.effect)
			_, beatErr := sessions.Apply(ctx, &session.Command{Op: session.KeepAlive, Beats: []session.Beat{{Session: a.Session, Nonce: nonce}}}, nil)
			_, endErr := sessions.Apply(ctx, &session.Command{Op: session.End, Session: a.Session, Nonce: nonce}, nil)
			if applied.Err != 0 {
				t.Errorf("apply: %v", applied.Err)
			}
			for what, err := range map[string]error{"apply": applyErr, "keep-alive": beatErr, "end": endErr} {
				if err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
			g, err := streams.InitProducer(ctx, "")
			if err == nil {
				err = streams.CreateStream(ctx, "s"+n)
			}
			if err == nil {
				b := batchOf(g, 0, n)
				b.Stream = "s" + n
				_, err = streams.Append(ctx, b)
			}
			if err != nil {
				t.Errorf("append: %v", err)
			}
			if _, err := in.Receive(ctx, &consume.Message{ID: n, Body: []byte(n)}); err != nil {
				t.Errorf("receive: %v", err)
			}
			err = h.receiver.InTx(ctx, func(ctx context.Context, tx Tx) error {
				return errors.Join(box.Publish(ctx, tx, outbox.Event{ID: n, Topic: "t", Payload: []byte(n)}), order.Start(ctx, sagas, tx, n, sagaOrder{"book"}))
			})
			if err == nil {
				err = sagas.Abort(ctx, n)
			}
			if err != nil {
				t.Errorf("publish, start a saga, abort it: %v", err)
			}
		})
	}
	group.Wait()
	durable := func(what string) {
		all := h.number(t, "SELECT count(*) FROM seen")
		if n := h.number(t, "SELECT count(*) FROM seen WHERE what <> 'on'"); n != 0 || all == 0 {
			t.Errorf("%s: %d of %d rows committed before they were on the disk", what, n, all)
		}
	}
	durable("writes")

	// Transactions that only delete: an event that exists again after a crash is published again.
	h.must(t, "UPDATE everonce_producer SET last = 1")
	h.must(t, "DELETE FROM seen")
	published := newSink()
	stop := relaying(t, box, published.publisher(), &outbox.RelayOptions{Retention: -1})
	published.awaitCount(t, 24)
	stop()
	durable("a relay that keeps nothing")
	h.must(t, "DELETE FROM seen")
	_, err = streams.Purge(ctx, time.Minute, 100)
	must(t, err)
	durable("a purge of producers")
}
