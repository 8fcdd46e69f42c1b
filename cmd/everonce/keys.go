package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/cmd/everonce/internal/identity"
	"github.com/everonce/everonce/cmd/everonce/internal/inspect"
	"github.com/everonce/everonce/cmd/everonce/internal/storeurl"
	"github.com/everonce/everonce/driver"
)

// storeVariable names the environment variable that stands in for --store.
const storeVariable = "EVERONCE_STORE"

// lookedElsewhere follows a store's error about missing or unknown tables. A command that looks for a service's records
// must neither create nor migrate tables.
const lookedElsewhere = "Check --store, --schema and --table-prefix, and that this program has the version of the service: a running service has its tables."

const keysLong = `keys shows what a store knows about operations, and settles unknown outcomes.

--store names the store: sqlite:FILE, postgres://user@host/database, redis://host/0,
mongodb://user@host/database, or dynamodb://table?region=REGION. Without it, the store is taken from ` + storeVariable + `,
which keeps a password out of the process list.
Nothing is created: a SQLite file that does not exist is an error.

Name an operation by --scope and --id, as the application built its key; by --record, the
record's ID, as "keys list" shows it; or by --hash, the hash of its key, as in logs and
dead letters: the command then searches all records, or those in --scope. If the store has
an identity secret, --scope and --id need --identity-secret-file. If you only have the key
that a customer sent, "keys list --id" lists its operations; show and explain also find it
without --scope, if there is only one.`

// keys returns the operator's commands for operations.
func (a *app) keys() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
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
	s.flags(cmd.PersistentFlags(), allStores, allPrefixes)
	cmd.AddCommand(a.keysList(s), a.keysShow(s), a.keysExplain(s), a.keysSettle(s), a.keysPurge(s))
	return cmd
}

// storeFlags are the flags of commands on a store.
type storeFlags struct {
	url    string
	opts   storeurl.Options
	json   bool
	stores string // the accepted kinds, for messages
}

// allStores names the stores, and allPrefixes what precedes their table or key names.
const (
	allStores   = "sqlite:FILE, postgres://…, mysql://…, redis://…, mongodb://… or dynamodb://…"
	allPrefixes = `prefix of the table names (default "everonce_") or of the Redis keys ("everonce:"); for MongoDB, the collection ("everonce")`
)

func (s *storeFlags) flags(f *pflag.FlagSet, stores, prefixes string) {
	s.stores = stores
	f.StringVar(&s.url, "store", "", stores+" (default $"+storeVariable+")")
	f.StringVar(&s.opts.TablePrefix, "table-prefix", "", prefixes)
	f.StringVar(&s.opts.Schema, "schema", "", "PostgreSQL schema of the tables (default: by the search_path)")
	f.BoolVar(&s.json, "json", false, "write JSON")
}

// open opens the store that --store or the environment names.
func (s *storeFlags) open(cmd *cobra.Command) (storeurl.Store, error) {
	if s.url == "" {
		s.url = os.Getenv(storeVariable)
	}
	if s.url == "" {
		return nil, usagef("which store? Give --store %s, or set %s", s.stores, storeVariable)
	}
	store, err := storeurl.Open(cmd.Context(), s.url, s.opts)
	if errors.Is(err, storeurl.ErrURL) {
		return nil, usagef("--store: %w", err)
	}
	return store, err
}

// words returns the flags with which another command opens the same store. It omits a URL with a password that came
// from the environment, where the next command finds it too; another one it shows without its password.
func (s *storeFlags) words() string {
	var words strings.Builder
	flag := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&words, "--%s %s ", name, inspect.Word(value))
		}
	}
	if shown := storeurl.Shown(s.url); shown == s.url || s.url != os.Getenv(storeVariable) {
		flag("store", shown)
	}
	flag("schema", s.opts.Schema)
	flag("table-prefix", s.opts.TablePrefix)
	return words.String()
}

// write writes v as JSON if asJSON is set, and as text otherwise.
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

// graphic escapes the characters in JSON that a terminal could take for a command. encoding/json does not escape 8-bit
// controls, nor characters that hide or reverse text.
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

// address holds the flags that name an operation.
type address struct {
	scope, id, record, hash, secretFile string
	// exact requires a scope with an ID, because a change could otherwise affect the operation of another scope with that
	// ID.
	exact bool
}

func (d *address) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&d.scope, "scope", "", "scope of the operation's key")
	f.StringVar(&d.id, "id", "", "ID of the operation's key")
	f.StringVar(&d.record, "record", "", "ID of the operation's record, instead of --scope and --id")
	f.StringVar(&d.hash, "hash", "", "hash of the operation's key, as in logs and dead letters; searched for in --scope, or in all scopes")
	f.StringVar(&d.secretFile, "identity-secret-file", "", "file with the store's identity secret, if it has one (a line end is not part of it)")
}

// finder finds the ID of the selected record.
type finder func(context.Context, storeurl.Store) (everonce.RecordID, error)

// finder reads the flags, and rejects those that name no operation before a store is opened.
func (d *address) finder() (finder, error) {
	switch {
	case d.hash != "" && (d.record != "" || d.id != ""):
		return nil, usagef("give only one of --hash, --record, or --scope and --id")
	case d.hash != "":
		hash, err := driver.ParseKeyHash(d.hash)
		if err != nil {
			return nil, usagef("--hash must be 16 hexadecimal digits, as in logs")
		}
		return func(ctx context.Context, store storeurl.Store) (everonce.RecordID, error) {
			return d.byHash(ctx, store, hash)
		}, nil
	case d.record != "" && (d.scope != "" || d.id != ""):
		return nil, usagef("give either --record, or --scope and --id")
	case d.record != "":
		id, err := driver.ParseRecordID(d.record)
		return func(context.Context, storeurl.Store) (everonce.RecordID, error) { return id, nil }, err
	case d.id == "", d.scope == "" && d.exact:
		return nil, usagef("which operation? Give --scope and --id, or --record, or --hash")
	case d.scope == "":
		return func(ctx context.Context, store storeurl.Store) (everonce.RecordID, error) { return d.byID(ctx, store) }, nil
	}
	return d.byKey, d.key().Validate()
}

func (d *address) key() everonce.Key {
	return everonce.Key{Scope: everonce.Scope(d.scope), ID: d.id}
}

// byKey derives the record ID from the key, with the identity secret if the store has one.
func (d *address) byKey(ctx context.Context, store storeurl.Store) (everonce.RecordID, error) {
	opts, err := d.identity()
	if err != nil {
		return everonce.RecordID{}, err
	}
	r, err := everonce.NewReceiver(store, everonce.Refuse, opts)
	if err != nil {
		return everonce.RecordID{}, err
	}
	// Another secret would name another record, and "not found" would be a wrong answer.
	if _, err := everonce.Lookup[struct{}](ctx, r, d.key()); errors.Is(err, driver.ErrIdentity) {
		return everonce.RecordID{}, fmt.Errorf("%w: %s", driver.ErrIdentity, d.otherSecret())
	}
	return r.RecordID(d.key()), nil
}

// identity reads the identity secret, if any.
func (d *address) identity() (*everonce.Options, error) {
	secret, err := identity.Secret(d.secretFile)
	if err != nil {
		return nil, fmt.Errorf("the identity secret: %w", err)
	}
	return &everonce.Options{IdentitySecret: secret}, nil
}

func (d *address) otherSecret() string {
	if d.secretFile == "" {
		return "the store has one (give --identity-secret-file, or name the operation by --record or --hash, which \"keys list --id\" shows)"
	}
	return "the secret in " + d.secretFile + " is not the store's (or name the operation by --record or --hash, which \"keys list --id\" shows)"
}

// byHash finds the record whose key has the hash.
func (d *address) byHash(ctx context.Context, store driver.Lister, hash driver.KeyHash) (everonce.RecordID, error) {
	found, err := store.List(ctx, driver.ListRequest{Scope: everonce.Scope(d.scope), KeyHash: hash, Limit: 1})
	switch {
	case err != nil:
		return everonce.RecordID{}, err
	case len(found.Records) == 0 || found.Records[0].ID.Hash() != hash:
		return everonce.RecordID{}, fmt.Errorf("%w (key %s): its record may have expired, or is in another scope", everonce.ErrNotFound, hash)
	}
	return found.Records[0].ID, nil
}

// byID finds the record whose key has this ID, in any scope. It fails if there are several.
func (d *address) byID(ctx context.Context, store driver.Lister) (everonce.RecordID, error) {
	found, err := store.List(ctx, driver.ListRequest{Name: d.id, Limit: 2})
	switch {
	case err != nil:
		return everonce.RecordID{}, err
	case len(found.Records) == 0 || found.Records[0].Name != d.id:
		return everonce.RecordID{}, fmt.Errorf("%w: no scope has an operation with this ID; its record may have expired, or never existed", everonce.ErrNotFound)
	case len(found.Records) > 1:
		return everonce.RecordID{}, usagef("more than one operation has this ID: \"keys list --id\" shows their scopes; add --scope")
	}
	return found.Records[0].ID, nil
}

// find opens the store and reads the selected record. The caller closes the store.
func (d *address) find(cmd *cobra.Command, s *storeFlags) (store storeurl.Store, got driver.GetResult, err error) {
	where, err := d.finder()
	if err != nil {
		return nil, got, err
	}
	if store, err = s.open(cmd); err != nil {
		return nil, got, err
	}
	id, err := where(cmd.Context(), store)
	if err == nil {
		got, err = store.Get(cmd.Context(), driver.GetRequest{ID: id})
	}
	if err == nil && !got.Found {
		err = d.notFound(id)
	}
	if err != nil {
		return nil, got, errors.Join(err, store.Close())
	}
	return store, got, nil
}

// notFound returns an error that says what may be wrong.
func (d *address) notFound(id everonce.RecordID) error {
	hint := "its record may have expired, or never existed"
	if d.record == "" && d.hash == "" {
		hint += ", or is in another scope: \"keys list --id\" looks in all"
	}
	return fmt.Errorf("%w (key %s): %s", everonce.ErrNotFound, id.Short(), hint)
}
