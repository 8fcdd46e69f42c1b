package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/sqldb"
)

// wants checks that an error is the store's, for that reason, and says what to do.
func wants(t *testing.T, what string, err, reason error, hint string) {
	t.Helper()
	switch {
	case !errors.Is(err, driver.ErrStore):
		t.Errorf("%s: %v, which is not ErrStore", what, err)
	case reason != nil && !errors.Is(err, reason):
		t.Errorf("%s: %v, want %v", what, err, reason)
	case !strings.Contains(err.Error(), hint):
		t.Errorf("%s: %q does not say %q", what, err, hint)
	}
}

func TestOpenRefusesWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	// SQLite would end the name at the zero byte, and open another file than the one that was named.
	for _, path := range []string{"", ":memory:", "file:x.db", "file::memory:", dir, filepath.Join(dir, "other.db\x00.db")} {
		if s, err := Open(t.Context(), path, nil); !errors.Is(err, driver.ErrInvalidArgument) {
			t.Errorf("Open(%q) = %v, %v, want ErrInvalidArgument", path, s, err)
		}
		if err := (*Options)(nil).Validate(path); path != dir && !errors.Is(err, driver.ErrInvalidArgument) {
			t.Errorf("Validate of %q: %v, want ErrInvalidArgument", path, err)
		}
	}
	for _, o := range []Options{{TablePrefix: "Drop Table"}, {TablePrefix: "1x"}, {TablePrefix: "sqlite_once_"}, {BusyTimeout: -1}, {Readers: -1}, {GroupLimit: -1}} {
		if _, err := Open(t.Context(), filepath.Join(dir, "x.db"), &o); !errors.Is(err, driver.ErrInvalidArgument) {
			t.Errorf("Open with %+v: %v, want ErrInvalidArgument", o, err)
		}
		if err := o.Validate("x.db"); !errors.Is(err, driver.ErrInvalidArgument) {
			t.Errorf("Validate of %+v: %v, want ErrInvalidArgument", o, err)
		}
	}
	if err := (*Options)(nil).Validate(filepath.Join(dir, "x.db")); err != nil {
		t.Errorf("no options: %v", err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 0 {
		t.Errorf("what was refused has left %d files (%v)", len(files), err)
	}
	s, err := Open(t.Context(), filepath.Join(dir, "no", "such", "folder.db"), nil)
	if err == nil {
		t.Errorf("a missing folder: %v", s)
	}
	wants(t, "a missing folder", err, nil, "open")
}

func TestAFileNameIsTakenAsItIs(t *testing.T) {
	for _, name := range []string{"a b.db", "100%.db", "what?.db", "#1.db", "ünï.db", "mode=memory&x.db"} {
		path := filepath.Join(t.TempDir(), name)
		s, err := Open(t.Context(), path, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAMissingTableSaysWhatToRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "empty.db")
	s, err := Open(t.Context(), path, &Options{NoMigrate: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx := t.Context()
	for what, call := range map[string]func() error{
		"Claim":    func() error { _, err := s.Claim(ctx, claimOf("a")); return err },
		"Get":      func() error { _, err := s.Get(ctx, driver.GetRequest{}); return err },
		"Begin":    func() error { _, _, err := s.Begin(ctx, driver.BeginRequest{}); return err },
		"Health":   func() error { _, err := s.Health(ctx, driver.HealthRequest{}); return err },
		"Identity": func() error { _, err := s.KeepIdentity(ctx, driver.KeepIdentityRequest{}); return err },
	} {
		wants(t, what, call(), driver.ErrSchema, "Store.Schema")
	}
	// A team's own migration tool runs the text.
	if _, err := s.DB().Exec(s.Schema()); err != nil {
		t.Fatalf("the schema's text: %v", err)
	}
	if res, err := s.Claim(ctx, claimOf("a")); err != nil || res.Decision != driver.DecideClaimed {
		t.Errorf("afterwards: %v, %v", res.Decision, err)
	}
	// A table that goes away later.
	if _, err := s.DB().Exec("DROP TABLE everonce_step; DROP TABLE everonce_record"); err != nil {
		t.Fatal(err)
	}
	_, err = s.Claim(ctx, claimOf("b"))
	wants(t, "a dropped table", err, driver.ErrSchema, "Store.Schema")
}

func TestANewerSchemaIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "newer.db")
	s, err := Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.DB().Exec("UPDATE everonce_meta SET value = '99' WHERE name = 'schema'"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = Open(t.Context(), path, nil)
	wants(t, "Open", err, driver.ErrSchema, "upgrade")
	wants(t, "Open", err, driver.ErrSchema, "the tables have version 99, this package knows 1")
	s, err = Open(t.Context(), path, &Options{NoMigrate: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, err = s.Claim(t.Context(), claimOf("a"))
	wants(t, "Claim", err, driver.ErrSchema, "upgrade")
}

// Tables with no version, or an unreadable one, are not used, and a store with unreadable settings is not bound.
func TestSettingsThatCanNotBeRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "damaged.db")
	s, err := Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	set := func(name, value string) {
		t.Helper()
		if _, err := s.DB().Exec("INSERT INTO everonce_meta (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = ?2", name, value); err != nil {
			t.Fatal(err)
		}
	}
	for _, value := range []string{"secret", "00", strings.Repeat("0", 63)} {
		set("identity", value)
		kept, err := s.ReadIdentity(t.Context(), driver.ReadIdentityRequest{})
		if !errors.Is(err, driver.ErrCorruptRecord) || kept.Bound || strings.Contains(err.Error(), "secret") {
			t.Errorf("the identity %q: %v, %v", value, kept.Bound, err)
		}
	}
	for value, want := range map[string]string{"": "Store.Schema", "0": "not a number", "-1": "not a number", "one": "not a number"} {
		set("schema", value)
		again, err := Open(t.Context(), path, &Options{NoMigrate: true})
		if err != nil {
			t.Fatal(err)
		}
		_, err = again.Claim(t.Context(), claimOf("a"))
		wants(t, "the version "+value, err, driver.ErrSchema, want)
		if err := again.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestAClosedStoreRefuses(t *testing.T) {
	s := openTest(t, nil)
	if _, err := s.Claim(t.Context(), claimOf("a")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	_, err := s.Claim(t.Context(), claimOf("b"))
	wants(t, "Claim", err, nil, "closed")
	_, err = s.Get(t.Context(), driver.GetRequest{ID: claimOf("a").ID})
	wants(t, "Get", err, nil, "closed")
	_, _, err = s.Begin(t.Context(), driver.BeginRequest{Timeout: time.Second})
	wants(t, "Begin", err, nil, "closed")
}

func TestACorruptRecordIsNotJudged(t *testing.T) {
	for what, damage := range map[string]string{
		"a state that does not exist":    "state = 9",
		"a short nonce":                  "nonce = x'00'",
		"a result without being done":    "result_kind = 1",
		"done without a result":          "state = 4",
		"half a fingerprint":             "fp_alg = 'x'",
		"a claim without a lease":        "lease_until = NULL",
		"an impossible token":            "token = 0",
		"a result of a kind that is not": "state = 4, result_kind = 77",
	} {
		s := openTest(t, nil)
		claim, err := s.Claim(t.Context(), claimOf("a"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.DB().Exec("UPDATE everonce_record SET " + damage); err != nil {
			t.Fatal(err)
		}
		_, err = s.Get(t.Context(), driver.GetRequest{ID: claim.Record.ID})
		wants(t, what+": Get", err, driver.ErrCorruptRecord, claim.Record.ID.Short())
		_, err = s.Claim(t.Context(), claimOf("a"))
		wants(t, what+": Claim", err, driver.ErrCorruptRecord, claim.Record.ID.Short())
		for state := driver.StateClaimed; state <= driver.StateTombstone; state++ { // an impossible state matches each
			req := driver.ListRequest{States: []driver.State{state}}
			if damage != "state = 9" {
				req.States = nil
			}
			list, err := s.List(t.Context(), req)
			if err != nil || len(list.Records) != 1 {
				t.Errorf("%s: List of %v: %v, %v: it must be found to be dealt with", what, req.States, list, err)
			}
		}
		if h, err := s.Health(t.Context(), driver.HealthRequest{}); damage == "state = 9" && (err != nil || h.Unreadable != 1 || h.Completed != 0) {
			t.Errorf("%s: Health: %+v, %v: it is taken for what it is not", what, h, err)
		}
	}
}

func TestARecordOfANewerVersionIsLeftAlone(t *testing.T) {
	s := openTest(t, nil)
	ctx := t.Context()
	claim, err := s.Claim(ctx, claimOf("a"))
	if err != nil {
		t.Fatal(err)
	}
	const newer = "UPDATE everonce_record SET format = 2, state = 42, lease_until = NULL, nonce = x'01'"
	if _, err := s.DB().Exec(newer); err != nil {
		t.Fatal(err)
	}
	for _, take := range []driver.TakeOver{driver.TakeNone, driver.TakeForced} {
		req := claimOf("a")
		req.Take = take
		_, err = s.Claim(ctx, req)
		wants(t, "Claim", err, driver.ErrNewerRecord, "newer")
	}
	_, err = s.Get(ctx, driver.GetRequest{ID: claim.Record.ID})
	wants(t, "Get", err, driver.ErrNewerRecord, "newer")
	_, _, err = s.Begin(ctx, driver.BeginRequest{Claim: &driver.ClaimRequest{ID: claim.Record.ID, Scope: "test", Name: "a", Nonce: driver.NewNonce()}})
	wants(t, "Begin", err, driver.ErrNewerRecord, "newer")
	var state int
	if err := s.DB().QueryRow("SELECT state FROM everonce_record").Scan(&state); err != nil || state != 42 {
		t.Errorf("the record has become %d, %v", state, err)
	}
}

// pragma runs a PRAGMA on the writer's own connection, and on the connections of transactions.
func (s *Store) pragma(t *testing.T, text string) {
	t.Helper()
	s.db.turn.enterUnless(nil)
	defer s.db.turn.leave()
	err := s.db.group.conn.send(context.Background(), &sqldb.Call{Statement: &sqldb.Statement{Name: "pragma", Text: "PRAGMA " + text}})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAReadOnlyDatabase(t *testing.T) {
	s := openTest(t, nil)
	ctx := t.Context()
	claim, err := s.Claim(ctx, claimOf("a"))
	if err != nil {
		t.Fatal(err)
	}
	s.pragma(t, "query_only = ON")
	_, err = s.Claim(ctx, claimOf("b"))
	wants(t, "Claim", err, nil, "accepts no writes")
	complete := driver.CompleteRequest{
		ID: claim.Record.ID, Token: claim.Record.Token, Nonce: claim.Record.Nonce, Lifetime: everonce.ForWeb(),
		Result: driver.SavedResult{Kind: driver.ResultValue, Codec: "raw", Data: []byte("done")},
	}
	_, err = s.Complete(ctx, complete)
	wants(t, "Complete", err, nil, "accepts no writes")
	if got, err := s.Get(ctx, driver.GetRequest{ID: claim.Record.ID}); err != nil || got.Record.State != driver.StateClaimed {
		t.Errorf("Get: %+v, %v", got, err)
	}
	s.pragma(t, "query_only = OFF")
	if _, err := s.Complete(ctx, complete); err != nil {
		t.Errorf("when it takes writes again: %v", err)
	}
}

func TestAFullDatabase(t *testing.T) {
	s := openTest(t, nil)
	ctx := t.Context()
	if _, err := s.Claim(ctx, claimOf("first")); err != nil {
		t.Fatal(err)
	}
	s.pragma(t, "max_page_count = 1") // what it has is the least
	var full error
	granted := 0
	for i := 0; full == nil && i < 10000; i++ {
		if _, full = s.Claim(ctx, claimOf(fmt.Sprint(i))); full == nil {
			granted++
		}
	}
	wants(t, "Claim", full, driver.ErrStoreFull, "store full: SQLite: claim: the database has no room")
	for i := range granted { // acknowledged claims are stored
		if got, err := s.Get(ctx, driver.GetRequest{ID: claimOf(fmt.Sprint(i)).ID}); err != nil || !got.Found {
			t.Fatalf("claim %d of %d: %v, %v", i, granted, got.Found, err)
		}
	}
	if got, err := s.Get(ctx, driver.GetRequest{ID: claimOf(fmt.Sprint(granted)).ID}); err != nil || got.Found {
		t.Errorf("the refused claim: %v, %v", got.Found, err)
	}
	s.pragma(t, "max_page_count = 1073741823")
	if _, err := s.Claim(ctx, claimOf(fmt.Sprint(granted))); err != nil {
		t.Errorf("when there is room again: %v", err)
	}
}

func TestAWriterOfAnotherProcessIsWaitedForWithinTheLimit(t *testing.T) {
	s := openTest(t, &Options{BusyTimeout: 50 * time.Millisecond})
	other, err := sql.Open("sqlite", "file:"+s.db.path+"?_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	tx, err := other.Begin()
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Claim(t.Context(), claimOf("a"))
	wants(t, "Claim", err, nil, "locked")
	if s.ClassifyTx(err) != driver.TxErrorRetry {
		t.Errorf("%v is not to be tried again", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Claim(t.Context(), claimOf("a")); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestClassify(t *testing.T) {
	s := openTest(t, nil)
	db := s.DB()
	if _, err := db.Exec(`CREATE TABLE parent (id INTEGER PRIMARY KEY);
		CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT, b TEXT, n INTEGER NOT NULL CHECK (n > 0), p INTEGER REFERENCES parent, UNIQUE (a, b)) STRICT;
		CREATE TABLE u (a TEXT);
		CREATE UNIQUE INDEX lowered ON u (lower(a));
		INSERT INTO u VALUES ('x');
		INSERT INTO t VALUES (1, 'x', 'y', 1, NULL)`); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text string
		want sqldb.ErrorInfo
	}{
		{"INSERT INTO t VALUES (1, 'q', 'q', 1, NULL)", sqldb.ErrorInfo{Class: sqldb.ClassUnique, NotDone: true}},
		{"INSERT INTO t VALUES (2, 'x', 'y', 1, NULL)", sqldb.ErrorInfo{Class: sqldb.ClassUnique, NotDone: true}},
		{"INSERT INTO u VALUES ('X')", sqldb.ErrorInfo{Class: sqldb.ClassUnique, NotDone: true}},
		{"INSERT INTO t VALUES (2, 'q', 'q', 0, NULL)", sqldb.ErrorInfo{Class: sqldb.ClassConstraint, NotDone: true}},
		{"INSERT INTO t VALUES (2, 'q', 'q', NULL, NULL)", sqldb.ErrorInfo{Class: sqldb.ClassConstraint, NotDone: true}},
		{"INSERT INTO t VALUES (2, 'q', 'q', 1, 7)", sqldb.ErrorInfo{Class: sqldb.ClassConstraint, NotDone: true}},
		{"INSERT INTO t VALUES (2, x'00', 'q', 1, NULL)", sqldb.ErrorInfo{Class: sqldb.ClassConstraint, NotDone: true}},
		{"INSERT INTO nowhere VALUES (1)", sqldb.ErrorInfo{Class: sqldb.ClassMissingTable, NotDone: true}},
		{"INSERT INTO t (zz) VALUES (1)", sqldb.ErrorInfo{Class: sqldb.ClassMissingTable, NotDone: true}},
		{"SELECT zz FROM t", sqldb.ErrorInfo{Class: sqldb.ClassMissingTable, NotDone: true}},
		{"INSERT INTO t VALUES (2, zeroblob(2000000000), 'q', 1, NULL)", sqldb.ErrorInfo{Class: sqldb.ClassTooLarge, NotDone: true}},
		{"no SQL", sqldb.ErrorInfo{NotDone: true}},
	} {
		_, err := db.Exec(c.text)
		if err == nil {
			t.Errorf("%s: no error", c.text)
			continue
		}
		if got := classify(fmt.Errorf("wrapped: %w", err)); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v is %+v, want %+v", c.text, err, got, c.want)
		}
		if !everonce.IsNotDone(Classify(err)) {
			t.Errorf("%s: Classify does not say that nothing took hold", c.text)
		}
	}
	for _, err := range []error{nil, errors.New("the gateway timed out"), context.Canceled, sql.ErrConnDone} {
		if got := Classify(err); got != err { //nolint:errorlint // the very same
			t.Errorf("Classify(%v) = %v", err, got)
		}
	}
}

func TestNotADatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "text.db")
	if err := os.WriteFile(path, []byte(strings.Repeat("this is no database\n", 500)), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), path, nil)
	if err == nil {
		t.Fatal(s)
	}
	wants(t, "Open", err, nil, "file is not a database")
}

// Open names the cause where a database is in a format of others: Turso's MVCC mode writes 255 for the versions of the
// file format.
func TestAFileInAnotherFormat(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turso.db")
	s, err := Open(t.Context(), path, nil)
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		_, err = file.WriteAt([]byte{255, 255}, 18)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(t.Context(), path, nil)
	wants(t, "Open", err, nil, "MVCC")
}

// Of a file that is damaged nothing is taken for absent: a key whose page cannot be read is not new.
func TestADamagedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "damaged.db")
	s, err := Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	const keys = 500
	for i := range keys {
		if _, err := s.Claim(t.Context(), claimOf(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := len(file) / 2; i < len(file)*3/4; i++ {
		file[i] = 0xff
	}
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(t.Context(), path, nil); err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // cleanup
	damaged := 0
	for i := range keys {
		req := claimOf(fmt.Sprint(i))
		got, err := s.Get(t.Context(), driver.GetRequest{ID: req.ID})
		if err == nil && got.Found {
			continue
		}
		damaged++
		wants(t, "Get", err, nil, "database disk image is malformed")
		_, err = s.Claim(t.Context(), req)
		wants(t, "Claim", err, nil, "database disk image is malformed")
	}
	if damaged == 0 || damaged == keys {
		t.Errorf("%d of %d keys cannot be read: that proves nothing", damaged, keys)
	}
}
