package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/internal/testserver"
	"github.com/everonce/everonce/store/pgxstore"
	"github.com/everonce/everonce/store/sqlitestore"
)

// TestScripts pins what the program says and how it ends. The scripts have these commands of their own:
//
//	records FILE                 makes a SQLite store with one record of each kind
//	secretrecord FILE SECRET ID  makes one with an identity secret, from a file, and one operation in it
//	deliver FILE ID              delivers an operation once more, and writes what became of it
//	request FILE KEY             sends a request to a protected handler that fails, and writes the answer
//	exits CODE COMMAND           runs a command that must end with that exit code
//	usage COMMAND                is exits 2
//	empty DIR                    fails if there is anything in a folder
func TestScripts(t *testing.T) {
//	token ID                     puts the token of an operation into $TOKEN, as "keys list --json" has it
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
	"deliver":      deliver,
	"request":      request,
	"exits":        exits,
	"secretrecord": secretRecord,
	"empty":        empty,
	"usage": func(ts *testscript.TestScript, neg bool, args []string) {
	"token":        token,
		exits(ts, neg, append([]string{"2"}, args...))
	},
}

// noRaceSleep spares every process of a race-detecting build the second that it sleeps at its end.
const noRaceSleep = "atexit_sleep_ms=0"

// setup takes away what the machine's own environment could change.
func setup(env *testscript.Env) error {
	env.Setenv(storeVariable, "")
	env.Setenv("GORACE", noRaceSleep)
	return nil
}

func records(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: records FILE")
	}
	store, err := sqlitestore.Open(ts.MkAbs(args[0]), nil)
	ts.Check(err)
	ts.Check(populate(store))
	ts.Check(store.Close())
}

func secretRecord(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: secretrecord FILE SECRETFILE ID")
	}
	store, err := sqlitestore.Open(ts.MkAbs(args[0]), nil)
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
	store, err := sqlitestore.Open(ts.MkAbs(args[0]), nil)
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

func empty(ts *testscript.TestScript, neg bool, args []string) {
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

	if neg || len(args) != 1 {
		ts.Fatalf("usage: empty DIR")
	}
	entries, err := os.ReadDir(ts.MkAbs(args[0]))
	ts.Check(err)
	for _, e := range entries {
		ts.Fatalf("there is %s", e.Name())
	}
}

// TestScriptsOnPostgres runs the program against PostgreSQL: $STORE is its URL, in $SCHEMA there is one
// record of each kind.
func TestScriptsOnPostgres(t *testing.T) {
	url := testserver.URL(t, "postgres")
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/postgres",
		RequireExplicitExec: true,
		Cmds:                commands,
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

// postgresSchema makes a schema with a store of records, which is gone after the test.
func postgresSchema(t *testing.T, url string) (string, error) {
	t.Helper()
	pool := openPool(t, url)
	schema := fmt.Sprintf("everonce_cli_%d", os.Getpid())
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
	return schema, populate(store)
}
