package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/internal/testserver"
	"github.com/everonce/everonce/session"
	"github.com/everonce/everonce/session/sqlsession"
	"github.com/everonce/everonce/store/pgxstore"
	"github.com/everonce/everonce/store/sqlitestore"
)

// TestScripts pins what the program says and how it ends. The scripts add these commands:
//
//	records FILE                 makes a SQLite store with one record of each kind
//	filled FILE                  makes one with an outbox and an inbox: see fill
//	sessions FILE                begins two client sessions in one
//	secretrecord FILE SECRET ID  makes one with an identity secret, from a file, and one operation in it
//	deliver FILE ID              delivers an operation once more, and writes what became of it
//	request FILE KEY             sends a request to a protected handler that fails, and writes the answer
//	exits CODE COMMAND           runs a command that must end with that exit code
//	usage COMMAND                is exits 2
//	empty DIR                    fails if there is anything in a folder
//	token ID                     puts the token of an operation into $TOKEN, as "keys list --json" has it
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               setup,
		Cmds:                commands,
	})
}

var commands = map[string]func(*testscript.TestScript, bool, []string){
	"records":      records,
	"filled":       filled,
	"sql":          writeSQL,
	"sessions":     withSessions,
	"deliver":      deliver,
	"request":      request,
	"exits":        exits,
	"secretrecord": secretRecord,
	"empty":        empty,
	"token":        token,
	"usage": func(ts *testscript.TestScript, neg bool, args []string) {
		exits(ts, neg, append([]string{"2"}, args...))
	},
}

// noRaceSleep spares every process of a race-detecting build the second that it sleeps at its end.
const noRaceSleep = "atexit_sleep_ms=0"

// setup takes away what the machine's own environment could change.
func setup(env *testscript.Env) error {
	env.Setenv(storeVariable, "")
	env.Setenv(toVariable, "")
	env.Setenv("GORACE", noRaceSleep)
	return nil
}

// withSessions begins two sessions in a file.
func withSessions(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: sessions FILE")
	}
	store, err := sqlitestore.Open(context.Background(), ts.MkAbs(args[0]), nil)
	ts.Check(err)
	defer store.Close()
	r, err := everonce.NewTxReceiver(store, nil)
	ts.Check(err)
	s, err := sqlsession.New(r, session.Config{Lease: time.Hour}, nil)
	ts.Check(err)
	ts.Check(s.Migrate(context.Background()))
	for n := range byte(2) {
		a, err := s.Apply(context.Background(), &session.Command{Op: session.Register, Nonce: session.Nonce{n}}, nil)
		ts.Check(errors.Join(err, a.Err.Or()))
	}
}

func records(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: records FILE")
	}
	store, err := sqlitestore.Open(context.Background(), ts.MkAbs(args[0]), nil)
	ts.Check(err)
	ts.Check(populate(store))
	ts.Check(store.Close())
}

func secretRecord(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: secretrecord FILE SECRETFILE ID")
	}
	store, err := sqlitestore.Open(context.Background(), ts.MkAbs(args[0]), nil)
	ts.Check(err)
	secret := strings.TrimSuffix(ts.ReadFile(args[1]), "\n")
	r, err := everonce.NewReceiver(store, everonce.Refuse, &everonce.Options{IdentitySecret: []byte(secret)})
	ts.Check(err)
	_, err = everonce.Do(context.Background(), r, everonce.Key{Scope: scope, ID: args[2]},
		func(context.Context, *everonce.Attempt) (receipt, error) { return receipt{7}, nil })
	ts.Check(err)
	ts.Check(store.Close())
}

func deliver(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: deliver FILE ID")
	}
	store, err := sqlitestore.Open(context.Background(), ts.MkAbs(args[0]), nil)
	ts.Check(err)
	_, err = fmt.Fprintln(ts.Stdout(), deliverTo(store, args[1]))
	ts.Check(err)
	ts.Check(store.Close())
}

// exits runs a command, of which stdout and stderr hold what it wrote, as after exec.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		got = exit.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func token(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: token ID")
	}
	ts.Check(ts.Exec("everonce", "keys", "list", "--id", args[0], "--json"))
	var l list
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &l))
	if len(l.Records) != 1 {
		ts.Fatalf("%d records have this ID, want 1", len(l.Records))
	}
	ts.Setenv("TOKEN", strconv.FormatInt(int64(l.Records[0].Token), 10))
}

func empty(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: empty DIR")
	}
	entries, err := os.ReadDir(ts.MkAbs(args[0]))
	ts.Check(err)
	for _, e := range entries {
		ts.Fatalf("there is %s", e.Name())
	}
}

// TestScriptsOnPostgres runs the program against PostgreSQL: $STORE is its URL, in $SCHEMA there is one record of each
// kind, and what fill makes. "applies SCHEMA" makes a schema, and in it the tables that "everonce schema" writes.
func TestScriptsOnPostgres(t *testing.T) {
	url := testserver.URL(t, "postgres")
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/postgres",
		RequireExplicitExec: true,
		Cmds:                withApplies(t, url),
		Setup: func(env *testscript.Env) error {
			schema, err := postgresSchema(t, url)
			if err != nil {
				return err
			}
			env.Setenv("STORE", url)
			env.Setenv("SCHEMA", schema)
			return setup(env)
		},
	})
}

// withApplies are the commands of a script on PostgreSQL.
func withApplies(t *testing.T, url string) map[string]func(*testscript.TestScript, bool, []string) {
	all := maps.Clone(commands)
	all["applies"] = func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) != 1 {
			ts.Fatalf("usage: applies SCHEMA")
		}
		var text strings.Builder
		for _, of := range []string{"records", "outbox", "inbox", "saga", "session"} {
			ts.Check(ts.Exec("everonce", "schema", "--for", of, "--schema", args[0]))
			text.WriteString(ts.ReadFile("stdout"))
		}
		pool := openPool(t, url)
		defer pool.Close()
		ts.Defer(func() { dropSchema(t, url, args[0]) })
		_, err := pool.Exec(context.Background(), "CREATE SCHEMA "+args[0]+"; "+text.String())
		ts.Check(err)
	}
	return all
}

// schemas is how many schemas there were.
var schemas atomic.Int64

// postgresSchema makes a schema with a store of records, which is gone after the test.
func postgresSchema(t *testing.T, url string) (string, error) {
	t.Helper()
	pool := openPool(t, url)
	schema := fmt.Sprintf("everonce_cli_%d_%d", os.Getpid(), schemas.Add(1))
	store, err := pgxstore.New(pool, &pgxstore.Options{Schema: schema})
	if err != nil {
		return "", err
	}
	drop := func() error {
		_, err := pool.Exec(t.Context(), "DROP SCHEMA IF EXISTS "+schema+" CASCADE")
		return err
	}
	if err := drop(); err != nil {
		return "", err
	}
	t.Cleanup(func() { dropSchema(t, url, schema) })
	if err := store.Migrate(t.Context()); err != nil {
		return "", err
	}
	return schema, errors.Join(populate(store), fill(store))
}
