package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/sqlitestore"
)

// hostile is what would command a terminal: by 7 bits, by 8, by turning the text round, and by nothing to see.
const hostile = "\x1b]0;title\a\x1b[2J\u009b2J\u202e\u2066\x7f\r\b\u200b"

// Text in a record, a flag or an error cannot control the terminal of its reader, and cannot forge a line.
func TestARecordIsNoCommandToATerminal(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "payments.db")
	s, err := sqlitestore.Open(t.Context(), file, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := everonce.NewReceiver(s, everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	key := everonce.Key{Scope: "shop", ID: "pay-7"}
	if _, err := everonce.Do(t.Context(), r, key, func(context.Context, *everonce.Attempt) (string, error) { return "", errWork }); err == nil {
		t.Fatal("it is known")
	}
	// No call lets such a name in; a hand in the table does.
	if _, err := s.DB().ExecContext(t.Context(), "UPDATE everonce_record SET scope = 'shop' || ?1 || char(10) || 'x', name = ?1, owner = ?1 || char(10) || 'x', last_error = ?1", hostile); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	record := key.RecordID().String()
	store := "sqlite:" + file
	commandNothing(t, [][]string{
		{"keys", "list", "--store", store},
		{"keys", "list", "--store", store, "--json"},
		{"keys", "show", "--store", store, "--record", record},
		{"keys", "show", "--store", store, "--record", record, "--json"},
		{"keys", "explain", "--store", store, "--record", record},
		{"keys", "explain", "--store", store, "--record", record, "--json"},
		{"keys", "settle", "--store", store, "--record", record, "--done", "--yes"},
		{"keys", "settle", "--store", store, "--record", record, "--done", "--yes"}, // which is an error now
		{"keys", "settle", "--store", store, "--record", record, "--done", "--yes", "--by", hostile},
		{"keys", "list", "--store", store + hostile},
		{"keys", "list", "--store", store, "--state", hostile},
		{"keys", "list", "--" + hostile},
		{"proxy", "--upstream", hostile, "--store", store, "--listen", hostile},
	})
}

// Nor does what an event or a message holds reach the terminal as a command.
func TestAnEventIsNoCommandToATerminal(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "shop.db")
	s, err := sqlitestore.Open(t.Context(), file, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := fill(s); err != nil {
		t.Fatal(err)
	}
	evil := hostile + "\nx"
	for _, text := range []string{
		"UPDATE everonce_outbox SET id = ?1, topic = ?1, order_key = ?1, type = ?1, content_type = ?1, error = ?1, headers = json_object(?1, ?1), payload = CAST(?1 AS BLOB) WHERE id = 'dead-1'",
		"UPDATE everonce_inbox SET id = ?1, type = ?1, order_key = ?1, source = ?1, error = ?1, headers = json_object(?1, ?1), body = CAST(?1 AS BLOB) WHERE id = 'dead'",
	} {
		if _, err := s.DB().ExecContext(t.Context(), text, evil); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	store := "--store=sqlite:" + file
	commandNothing(t, [][]string{
		{"outbox", "list", store},
		{"outbox", "list", store, "--json"},
		{"outbox", "show", store, "--payload", "--id", evil},
		{"outbox", "show", store, "--payload", "--json", "--id", evil},
		{"outbox", "retry", store, "--topic", evil},
		{"outbox", "discard", store, "--id", evil, "--state", evil},
		{"outbox", "relay", store, "--to", evil},
		{"inbox", "list", store, "--consumer", "billing"},
		{"inbox", "list", store, "--consumer", evil, "--json", "--state", evil},
		{"inbox", "show", store, "--consumer", "billing", "--payload", "--id", evil},
		{"inbox", "discard", store, "--consumer", "billing", "--type", evil},
	})
}

// commandNothing runs the program with arguments, and looks at what it writes.
func commandNothing(t *testing.T, all [][]string) {
	t.Helper()
	for _, args := range all {
		var out bytes.Buffer
		execute(t.Context(), args, strings.NewReader(""), &out, &out)
		if out.Len() == 0 {
			t.Errorf("%q wrote nothing", args)
		}
		for line := range strings.Lines(out.String()) {
			if i := strings.IndexFunc(strings.TrimSuffix(line, "\n"), func(r rune) bool { return !unicode.IsGraphic(r) }); i >= 0 {
				t.Errorf("%q wrote %q", args[:2], line[i:])
			}
			if strings.HasPrefix(line, "x") {
				t.Errorf("%q wrote the line %q", args[:2], line)
			}
		}
	}
}
