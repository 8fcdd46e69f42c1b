package patterntest

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/outbox"
	"github.com/everonce/everonce/saga"
	"github.com/everonce/everonce/session"
)

// oddSettings are settings of a session that change nothing for the patterns: a limit of selects above all, which the
// --safe-updates of the command line sets, and modes in which texts mean something else.
const oddSettings = "sql_select_limit=1&sql_auto_is_null=1&time_zone=%27%2B05:00%27&div_precision_increment=0&group_concat_max_len=4" +
	"&sql_mode=%27ANSI_QUOTES,PIPES_AS_CONCAT,IGNORE_SPACE,HIGH_NOT_PRECEDENCE,NO_UNSIGNED_SUBTRACTION,NO_BACKSLASH_ESCAPES%27"

func TestOddSettingsOfMySQL(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*testing.T, *handle[*sql.Tx]){
		"archive": testArchive[*sql.Tx], "crowd": testManyBehindOneKey[*sql.Tx], "inbox": testInboxHandlesOnce[*sql.Tx], "saga": testSaga[*sql.Tx],
		"session": testSessionOneCommit[*sql.Tx], "sessions": testSessionBatch[*sql.Tx], "sessions' end": testSessionPurge[*sql.Tx], "producer": testProducerRetention[*sql.Tx],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onMySQLServers(t, func(t *testing.T, server string) {
				_, _, h := onDatabase(t, with(server, oddSettings))
				test(t, h)
			})
		})
	}
}

// A setting with which what was written is lost, or written twice, is refused by each pattern, where it is set after
// the first use too.
func TestBadSettingsOfMySQL(t *testing.T) {
	t.Parallel()
	onMySQLs(t, testBadSettings)
}

func testBadSettings(t *testing.T, h *handle[*sql.Tx]) {
	ctx := t.Context()
	box, in, sagas := newOutbox(t, h), newInbox(t, h, nil), newSagas(t, h)
	sessions, streams := newSessions(t, h, session.Config{}, nil), newStreams(t, h, nil)
	nonce := anyNonce()
	id := sessions.register(t, nonce)
	grant := streams.grant(t, "")
	define, err := saga.Define("order", 1, orderSteps(h, &world{})...)
	must(t, err)
	h.db.SetMaxOpenConns(1)
	inTx := func(write func(tx *sql.Tx) error) func() error {
		return func() error {
			tx, _, rollback, err := h.begin(ctx)
			must(t, err)
			defer rollback() //nolint:errcheck // it is for nothing
			return write(tx)
		}
	}
	calls := map[string]func() error{
		"publish":        inTx(func(tx *sql.Tx) error { return box.Publish(ctx, tx, outbox.Event{Topic: "orders"}) }),
		"publish, named": inTx(func(tx *sql.Tx) error { return box.Publish(ctx, tx, outbox.Event{ID: "7", Topic: "orders"}) }),
		"start":          inTx(func(tx *sql.Tx) error { return define.Start(ctx, sagas, tx, "7", sagaOrder{}) }),
		"receive":        func() error { _, err := in.Receive(ctx, &consume.Message{ID: "7"}); return err },
		"get":            func() error { _, err := in.Get(ctx, "7"); return err },
		"stats":          func() error { _, err := box.Backlog().Stats(ctx); return err },
		"archive": func() error {
			_, err := box.Archive(ctx, 0, func(context.Context, *sql.Tx, []outbox.Event) error { return nil })
			return err
		},
		"register": func() error {
			_, err := sessions.Apply(ctx, &session.Command{Op: session.Register, Nonce: anyNonce()}, nil)
			return err
		},
		"request": func() error {
			c := requestOf(id, nonce, 1, "7")
			_, err := sessions.Apply(ctx, &c, sessions.effect)
			return err
		},
		"append":           func() error { _, err := streams.Append(ctx, batchOf(grant, 0, "7")); return err },
		"grant":            func() error { _, err := streams.InitProducer(ctx, "7"); return err },
		"read of a stream": func() error { _, err := streams.Read(ctx, "orders", 0, 10); return err },
	}
	for set, back := range map[string]string{"completion_type = CHAIN": "completion_type = NO_CHAIN", "unique_checks = 0": "unique_checks = 1", "sql_log_bin = 0": "sql_log_bin = 1"} {
		h.must(t, "SET "+set)
		name, _, _ := strings.Cut(set, " ")
		for what, call := range calls {
			if err := call(); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s with %s: %v, want an error that names it", what, set, err)
			}
		}
		h.must(t, "ROLLBACK AND NO CHAIN")
		h.must(t, "SET "+back)
	}
	for _, table := range []string{"outbox", "saga", "inbox", "session_answer", "producer_log"} {
		if n := h.number(t, "SELECT count(*) FROM everonce_"+table); n != 0 {
			t.Errorf("%d rows in the table %s", n, table)
		}
	}
}
