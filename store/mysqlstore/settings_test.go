package mysqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/mysqlstore"
)

// badSettings are what the store refuses in a session, with how to have it and how to end it.
func badSettings(on server) map[string][2]string {
	return map[string][2]string{
		"autocommit":         {"SET autocommit = 0", "SET autocommit = 1"},
		"completion_type":    {"SET completion_type = CHAIN", "SET completion_type = NO_CHAIN"},
		"READ UNCOMMITTED":   {"SET " + on.isolation() + " = 'READ-UNCOMMITTED'", "SET " + on.isolation() + " = 'REPEATABLE-READ'"},
		"unique_checks":      {"SET unique_checks = 0", "SET unique_checks = 1"},
		"foreign_key_checks": {"SET foreign_key_checks = 0", "SET foreign_key_checks = 1"},
		"sql_safe_updates":   {"SET sql_safe_updates = 1", "SET sql_safe_updates = 0"},
		"sql_log_bin":        {"SET sql_log_bin = 0", "SET sql_log_bin = 1"},
		"character_set":      {"SET character_set_connection = latin1", "SET NAMES utf8mb4"},
	}
}

// A setting with which statements mean something else is refused on each connection, also where it was set after the
// first use, whatever is called. When it is set right again, the connection can be used.
func TestBadSettingsAreRefusedOnEachConnection(t *testing.T) {
	onEach(t, testBadSettingsAreRefusedOnEachConnection)
}

func testBadSettingsAreRefusedOnEachConnection(t *testing.T, on server) {
	b := newBank(t, on, nil)
	b.db.SetMaxOpenConns(1)
	ctx := t.Context()
	receiver, err := everonce.NewReceiver(b.Store, everonce.Refuse, &everonce.Options{StoreTimeout: time.Second})
	noErr(t, err)
	claim := driver.ClaimRequest{ID: driver.RecordID{7}, Nonce: driver.Nonce{1}, Lease: time.Minute}
	claimed, err := b.Claim(ctx, claim)
	noErr(t, err)
	token := claimed.Record.Token
	_, err = everonce.Transact(ctx, b.tr, order("old"), func(context.Context, *sql.Tx) (int, error) { return 1, nil })
	noErr(t, err)
	nothing := func(context.Context) (int, error) { return 1, nil }
	inTx := func(context.Context, *sql.Tx) (int, error) { return 1, nil }
	calls := map[string]func() error{
		"Do": func() error {
			_, err := everonce.Do(ctx, receiver, order("new"), func(context.Context, *everonce.Attempt) (int, error) { return 1, nil })
			return err
		},
		"Transact": func() error { _, err := everonce.Transact(ctx, b.tr, order("new"), inTx); return err },
		"Transact, optimistic": func() error {
			_, err := everonce.Transact(ctx, b.tr, order("new"), inTx, everonce.Optimistic())
			return err
		},
		"DoTx": func() error {
			tx, err := b.db.BeginTx(ctx, nil)
			noErr(t, err)
			defer tx.Rollback() //nolint:errcheck // it is for nothing
			_, err = everonce.DoTx(ctx, tx, b.tr, order("new"), nothing)
			return err
		},
		"Get":      func() error { _, err := b.Get(ctx, driver.GetRequest{ID: claim.ID}); return err },
		"Get, new": func() error { _, err := b.Get(ctx, driver.GetRequest{ID: driver.RecordID{8}}); return err },
		"Renew": func() error {
			_, err := b.Renew(ctx, driver.RenewRequest{ID: claim.ID, Token: token, Nonce: claim.Nonce, Lease: time.Minute})
			return err
		},
		"Complete": func() error {
			_, err := b.Complete(ctx, driver.CompleteRequest{ID: claim.ID, Token: token, Nonce: claim.Nonce})
			return err
		},
		"SaveStep": func() error {
			_, err := b.SaveStep(ctx, driver.SaveStepRequest{ID: claim.ID, Token: token, Nonce: claim.Nonce, Step: driver.StepRecord{Name: "mail", State: driver.StepOpen, Attempt: 1}})
			return err
		},
		"Release": func() error {
			_, err := b.Release(ctx, driver.ReleaseRequest{ID: claim.ID, Token: token, Nonce: claim.Nonce, State: driver.StateReleased})
			return err
		},
		"KeepIdentity": func() error { _, err := b.KeepIdentity(ctx, driver.KeepIdentityRequest{}); return err },
		"Migrate":      func() error { return b.Migrate(ctx) },
		"Purge":        func() error { _, err := b.Purge(ctx, driver.PurgeRequest{}); return err },
		"List":         func() error { _, err := b.List(ctx, driver.ListRequest{}); return err },
		"Health":       func() error { _, err := b.Health(ctx, driver.HealthRequest{}); return err },
		"DeleteScope":  func() error { _, err := b.DeleteScope(ctx, driver.DeleteScopeRequest{Scope: "orders"}); return err },
		"InsertOnce": func() error {
			_, _, err := mysqlstore.InsertOnce(ctx, b.db, mysqlstore.Insert{
				Table: "account", Columns: []string{"id", "balance"}, Values: []any{9, 1}, Key: []string{"id"}, Returning: []string{"id"},
			}, func(r mysqlstore.Row) (id int64, err error) { return id, r.Scan(&id) })
			return err
		},
	}
	for names, set := range badSettings(on) {
		mustExec(t, b.db, set[0])
		for what, call := range calls {
			err := call()
			if err == nil || !strings.Contains(err.Error(), names) && !strings.Contains(err.Error(), "Error 3988") { // MySQL itself refuses to convert
				t.Errorf("%s after %s: %v, want an error that names it", what, set[0], err)
			}
		}
		mustExec(t, b.db, "ROLLBACK AND NO CHAIN")
		mustExec(t, b.db, set[1])
		if n := b.records(); n != 1 {
			t.Errorf("after %s there are %d records", set[0], n)
		}
	}
	_, err = b.Complete(ctx, driver.CompleteRequest{ID: claim.ID, Token: token, Nonce: claim.Nonce})
	noErr(t, err)
}

// A statement that began an hour ago is not refused: it had much to look at, or waited, or a replica runs its text. A
// session whose timestamp is an hour old is like it.
func TestALongStatementIsNotRefused(t *testing.T) { onEach(t, testALongStatementIsNotRefused) }

func testALongStatementIsNotRefused(t *testing.T, on server) {
	b := newBank(t, on, nil)
	ctx := t.Context()
	claim := driver.ClaimRequest{ID: driver.RecordID{7}, Scope: "orders", Nonce: driver.Nonce{1}, Lease: time.Minute}
	_, err := b.Claim(ctx, claim)
	noErr(t, err)
	b.db.SetMaxOpenConns(1)
	mustExec(t, b.db, "SET timestamp = UNIX_TIMESTAMP() - 3600")
	_, err = b.Health(ctx, driver.HealthRequest{})
	noErr(t, err)
	_, err = b.Get(ctx, driver.GetRequest{ID: claim.ID})
	noErr(t, err)
	_, err = b.Claim(ctx, driver.ClaimRequest{ID: driver.RecordID{8}, Nonce: driver.Nonce{1}, Lease: time.Minute})
	noErr(t, err)
	_, err = b.DeleteScope(ctx, driver.DeleteScopeRequest{Scope: "orders"})
	noErr(t, err)
}

// All that this package sends asks for the settings, but for these, which neither read nor change rows of everonce's
// tables.
func TestStatementsThatDoNotAskForSettings(t *testing.T) {
	named := map[string]bool{
		"SET TRANSACTION READ WRITE": true, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED": true,
		"SELECT GET_LOCK(?, ?)": true, "DO RELEASE_LOCK(?)": true, // of a migration
	}
	files, err := filepath.Glob("*.go")
	noErr(t, err)
	literal := regexp.MustCompile(`(?:Exec|Query|QueryRow|Prepare)Context\(\w+, ["\x60]([^"\x60]*)`)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		noErr(t, err)
		for _, found := range literal.FindAllStringSubmatch(string(text), -1) {
			if !named[found[1]] {
				t.Errorf("%s sends %q, which does not ask for the settings", file, found[1])
			}
			delete(named, found[1])
		}
	}
	if len(named) > 0 {
		t.Errorf("these are not sent: %v", named)
	}
}

// A charge that was answered executed is not made again by the next process, though each COMMIT of this one began a
// transaction.
func TestAChainedTransactionTakesNoRecordBack(t *testing.T) {
	onEach(t, testAChainedTransactionTakesNoRecordBack)
}

func testAChainedTransactionTakesNoRecordBack(t *testing.T, on server) {
	b := newBank(t, on, nil)
	charges := 0
	process := func() error {
		db := on.open(t, func(c *mysql.Config) {
			c.DBName, c.Params = b.name, map[string]string{"completion_type": "CHAIN"}
		})
		defer db.Close()
		db.SetMaxOpenConns(1)
		store, err := mysqlstore.New(db, nil)
		noErr(t, err)
		tx, err := db.BeginTx(t.Context(), nil) // the application's own
		noErr(t, err)
		noErr(t, tx.Commit())
		receiver, err := everonce.NewReceiver(store, everonce.Refuse, nil)
		noErr(t, err)
		_, err = everonce.Do(t.Context(), receiver, order("7"), func(context.Context, *everonce.Attempt) (int, error) { charges++; return 1, nil })
		return err
	}
	first := process()
	if second := process(); charges > 1 || first == nil && second != nil {
		t.Errorf("%d charges: %v, then %v", charges, first, second)
	}
}

// Settings that a session may have for the application's sake change nothing for the store: the suite passes.
func TestConformanceWithOddSettings(t *testing.T) { onEach(t, testConformanceWithOddSettings) }

func testConformanceWithOddSettings(t *testing.T, on server) {
	caps := on.capabilities()
	caps.Variant = true
	caps.BusyThoughDone = true // they read at serializable, where duplicates lock the record for one another
	conformanceTx(t, on, func(c *mysql.Config) { c.Params = on.oddSettings() }, nil, caps)
}

// oddSettings are such settings.
func (s server) oddSettings() map[string]string {
	odd := map[string]string{
		"sql_select_limit": "1", "sql_auto_is_null": "1", "sql_buffer_result": "1", "max_sort_length": "64",
		"div_precision_increment": "0", "group_concat_max_len": "4", "time_zone": "'+05:00'", s.isolation(): "'SERIALIZABLE'",
	}
	modes := "ANSI_QUOTES,PIPES_AS_CONCAT,IGNORE_SPACE,HIGH_NOT_PRECEDENCE,NO_UNSIGNED_SUBTRACTION,NO_BACKSLASH_ESCAPES,NO_AUTO_VALUE_ON_ZERO,PAD_CHAR_TO_FULL_LENGTH"
	if !s.mysql {
		odd["innodb_snapshot_isolation"] = "1"
		modes += ",SIMULTANEOUS_ASSIGNMENT,TIME_ROUND_FRACTIONAL,EMPTY_STRING_IS_NULL"
	}
	odd["sql_mode"] = "'" + modes + "'"
	return odd
}

// A step that was done is done, whatever sql_select_limit is: the --safe-updates of the command line sets 1000.
func TestALimitOfSelectsHidesNoStep(t *testing.T) { onEach(t, testALimitOfSelectsHidesNoStep) }

func testALimitOfSelectsHidesNoStep(t *testing.T, on server) {
	b := newBank(t, on, func(c *mysql.Config) { c.Params = map[string]string{"sql_select_limit": "2"} })
	receiver, err := everonce.NewReceiver(b.Store, everonce.Reexecute, nil)
	noErr(t, err)
	runs := make(map[string]int)
	for try := range 2 {
		_, err = everonce.Do(t.Context(), receiver, order("7"), func(ctx context.Context, a *everonce.Attempt) (int, error) {
			for i := range 4 {
				name := fmt.Sprint("step", i)
				if _, err := everonce.Step(ctx, a, name, func(context.Context) (int, error) { runs[name]++; return i, nil }); err != nil {
					return 0, err
				}
			}
			if try == 0 {
				return 0, everonce.NotDone(errors.New("not yet"))
			}
			return 1, nil
		})
	}
	noErr(t, err)
	for name, n := range runs {
		if n != 1 {
			t.Errorf("%s ran %d times", name, n)
		}
	}
}

// Guarded operations on different keys do not disturb one another, whatever the isolation that a session begins with.
func TestGuardedWritesOfOtherKeysAtAnyIsolation(t *testing.T) {
	onEach(t, testGuardedWritesOfOtherKeysAtAnyIsolation)
}

func testGuardedWritesOfOtherKeysAtAnyIsolation(t *testing.T, on server) {
	for _, level := range []string{"REPEATABLE-READ", "SERIALIZABLE"} {
		b := newBank(t, on, func(c *mysql.Config) { c.Params = map[string]string{on.isolation(): "'" + level + "'"} })
		ctx := t.Context()
		receiver, err := everonce.NewReceiver(b.Store, everonce.Reexecute, nil)
		noErr(t, err)
		short, notYet := everonce.WithLifetime(everonce.Lifetime{Retention: time.Millisecond}), errors.New("not yet")
		wait := everonce.WithWait(10 * time.Second) // a purge may hold a key for a moment
		var wg sync.WaitGroup
		for worker := range 16 {
			wg.Go(func() {
				for i := range 5 {
					key := order(fmt.Sprint(worker, "-", i))
					for try := range 2 { // released, then done
						_, err := everonce.Do(ctx, receiver, key, func(ctx context.Context, a *everonce.Attempt) (int, error) {
							if try == 0 {
								return 0, everonce.NotDone(notYet)
							}
							return everonce.Step(ctx, a, "mail", func(context.Context) (int, error) { return 1, nil })
						}, short, wait)
						if err != nil && !errors.Is(err, notYet) {
							t.Errorf("%s: %v", level, err)
						}
					}
				}
			})
		}
		wg.Go(func() {
			for range 10 {
				if _, err := b.Purge(ctx, driver.PurgeRequest{Limit: 50}); err != nil {
					t.Errorf("%s: Purge: %v", level, err)
				}
			}
		})
		wg.Wait()
	}
}
