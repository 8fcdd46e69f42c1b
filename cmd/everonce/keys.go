package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/cmd/everonce/internal/storeurl"
)

// storeVariable names the environment variable that stands in for --store.
const storeVariable = "EVERONCE_STORE"

// keysName is what the set of tools is called.
const keysName = "keys"

// lookedElsewhere goes with what the store says of tables that it does not find: who looks for a service's records must not make
// tables for it.
const lookedElsewhere = "Look first whether --store, --schema and --table-prefix name the place: a service that runs has its tables."

const keysLong = `keys shows what a store knows about operations, and settles outcomes that nobody knows.

--store names the store: sqlite:FILE, postgres://user@host/database, redis://host/0, or
mongodb://user@host/database. Without it, the store is taken from ` + storeVariable + `,
which keeps a password out of the process list.
Nothing is created: a SQLite file that does not exist is an error.

Name an operation by --scope and --id, as the application built its key; by --record, the
record's ID, as "keys list" shows it; or by --hash, the hash of its key, as logs and dead
letters have it: this searches all records, or those of --scope. If the store has an
identity secret, --scope and --id need --identity-secret-file.`

// keys is the operator's set of tools.
func (a *app) keys() *cobra.Command {
	cmd := &cobra.Command{
		Use:   keysName,
		Short: "Show, explain and settle the operations in a store",
		Long:  keysLong,
		Example: "  everonce keys list --store sqlite:payments.db --state abandoned\n" +
			"  everonce keys show --store sqlite:payments.db --scope shop/payments --id payment-000007\n" +
			"  everonce keys explain --store postgres://localhost/shop --record 5f0c…",
		Args: aCommand,
		RunE: func(*cobra.Command, []string) error {
			return usagef("keys needs a command: list, show, explain, settle or purge")
		},
	}
	s := &storeFlags{}
	f := cmd.PersistentFlags()
	f.StringVar(&s.url, "store", "", "sqlite:FILE, postgres://…, redis://… or mongodb://… (default $"+storeVariable+")")
	f.StringVar(&s.opts.TablePrefix, "table-prefix", "", `prefix of the table names (default "everonce_") or of the Redis keys ("everonce:"); for MongoDB, the collection ("everonce")`)
	f.StringVar(&s.opts.Schema, "schema", "", "PostgreSQL schema of the tables (default: by the search_path)")
	f.BoolVar(&s.json, "json", false, "write JSON")
	cmd.AddCommand(a.keysList(s), a.keysShow(s), a.keysExplain(s), a.keysSettle(s), a.keysPurge(s))
	return cmd
}

// storeFlags are the flags of all of its commands.
type storeFlags struct {
	url  string
	opts storeurl.Options
	json bool
}

// open opens the store.
func (s *storeFlags) open(cmd *cobra.Command) (storeurl.Store, error) {
	if s.url == "" {
		s.url = os.Getenv(storeVariable)
	}
	if s.url == "" {
		return nil, usagef("which store? Give --store sqlite:FILE, postgres://…, redis://… or mongodb://…, or set %s", storeVariable)
	}
	store, err := storeurl.Open(cmd.Context(), s.url, s.opts)
	if errors.Is(err, storeurl.ErrURL) {
		return nil, usagef("--store: %w", err)
	}
	return store, err
}

// write writes v as JSON, or as text where that was not asked for.
func (a *app) write(asJSON bool, v any, text func() error) error {
	if !asJSON {
		return text()
	}
	encoded, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = a.out.Write(append(graphic(encoded), '\n'))
	return err
}

// graphic is the same JSON, in which a terminal finds no command: encoding/json leaves the controls of 8 bits, and what hides or
// turns round a text, as they are.
func graphic(text []byte) []byte {
	safe := make([]byte, 0, len(text)+1)
	for _, r := range string(text) {
		switch {
		case unicode.IsGraphic(r):
			safe = utf8.AppendRune(safe, r)
		case r < 1<<16:
			safe = fmt.Appendf(safe, `\u%04x`, r)
		default:
			high, low := utf16.EncodeRune(r)
			safe = fmt.Appendf(safe, `\u%04x\u%04x`, high, low)
		}
	}
	return safe
}

// address is how a command is told which operation is meant.
type address struct {
	scope, id, record, hash, secretFile string
}

func (d *address) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&d.scope, "scope", "", "scope of the operation's key")
	f.StringVar(&d.id, "id", "", "ID of the operation's key")
	f.StringVar(&d.record, "record", "", "ID of the operation's record, instead of --scope and --id")
	f.StringVar(&d.hash, "hash", "", "hash of the operation's key, as logs and dead letters have it; searched for in --scope, or everywhere")
	f.StringVar(&d.secretFile, "identity-secret-file", "", "file with the store's identity secret, if it has one (a line end is not part of it)")
}

// check refuses what addresses no operation.
func (d *address) check() error {
	switch {
	case d.hash != "" && (d.record != "" || d.id != ""):
		return usagef("give only one of --hash, --record, or --scope and --id")
	case d.hash != "":
		if _, err := hex.DecodeString(d.hash); err != nil || len(d.hash) != hashLen {
			return usagef("--hash must be %d hexadecimal digits", hashLen)
		}
		return nil
	case d.record != "" && (d.scope != "" || d.id != ""):
		return usagef("give either --record, or --scope and --id")
	case d.record != "":
		_, err := everonce.ParseRecordID(d.record)
		return err
	case d.scope == "" || d.id == "":
		return usagef("which operation? Give --scope and --id, or --record, or --hash")
	}
	return d.key().Validate()
}

// hashLen is how many digits [everonce.RecordID.Short] has.
const hashLen = 16

func (d *address) key() everonce.Key {
	return everonce.Key{Scope: everonce.Scope(d.scope), ID: d.id}
}

// recordID returns the ID of the record that is meant, by a secret that belongs to the store if need be.
func (d *address) recordID(ctx context.Context, store storeurl.Store) (everonce.RecordID, error) {
	if d.hash != "" {
		return d.byHash(ctx, store)
	}
	if d.record != "" {
		return everonce.ParseRecordID(d.record)
	}
	if d.secretFile == "" {
		return d.key().RecordID(), nil
	}
	secret, err := os.ReadFile(d.secretFile)
	if err != nil {
		return everonce.RecordID{}, fmt.Errorf("the identity secret: %w", err)
	}
	if secret = bytes.TrimRight(secret, "\r\n"); len(secret) == 0 {
		return everonce.RecordID{}, fmt.Errorf("the identity secret: %s is empty", d.secretFile)
	}
	opts := &everonce.Options{IdentitySecret: secret}
	r, err := everonce.NewReceiver(store, everonce.Refuse, opts)
	if err != nil {
		return everonce.RecordID{}, err
	}
	return r.RecordID(d.key()), nil
}

// byHash looks through the records for the one whose key has that hash.
func (d *address) byHash(ctx context.Context, store everonce.Lister) (id everonce.RecordID, err error) {
	req := everonce.ListRequest{Scope: everonce.Scope(d.scope), Limit: maxPage}
	for {
		page, err := store.List(ctx, req)
		if err != nil {
			return id, err
		}
		for i := range page.Records {
			if strings.EqualFold(page.Records[i].ID.Short(), d.hash) {
				return page.Records[i].ID, nil
			}
		}
		if page.Next == id {
			return id, fmt.Errorf("%w (key %s): its record may have expired, or is in another scope", everonce.ErrNotFound, d.hash)
		}
		req.After = page.Next
	}
}

// find opens the store and reads the record that is meant. The store is the caller's to close.
func (d *address) find(cmd *cobra.Command, s *storeFlags) (store storeurl.Store, got everonce.GetResult, err error) {
	if err = d.check(); err != nil {
		return nil, got, err
	}
	if store, err = s.open(cmd); err != nil {
		return nil, got, err
	}
	id, err := d.recordID(cmd.Context(), store)
	if err == nil {
		got, err = store.Get(cmd.Context(), everonce.GetRequest{ID: id})
	}
	if err == nil && !got.Found {
		err = d.notFound(id)
	}
	if err != nil {
		return nil, got, errors.Join(err, store.Close())
	}
	return store, got, nil
}

// notFound says what may be wrong.
func (d *address) notFound(id everonce.RecordID) error {
	hint := "its record may have expired, or never existed"
	if d.record == "" && d.secretFile == "" {
		hint += "; if the store has an identity secret, give --identity-secret-file"
	}
	return fmt.Errorf("%w (key %s): %s", everonce.ErrNotFound, id.Short(), hint)
}
