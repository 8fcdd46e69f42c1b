package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/backlog"
	"github.com/everonce/everonce/cmd/everonce/internal/duration"
	"github.com/everonce/everonce/cmd/everonce/internal/inspect"
	"github.com/everonce/everonce/cmd/everonce/internal/storeurl"
)

var errNoEntry = errors.New("there is no such entry")

// sqlStores are the stores that a pattern's table can be beside.
const sqlStores = "sqlite:FILE, postgres://… or mysql://…"

// backlog returns the operator's commands for a pattern.
func (a *app) backlog(p *pattern) *cobra.Command {
	names := "list, show, retry, discard or stats"
	b := &backlogFlags{pattern: p}
	cmd := &cobra.Command{
		Use:   p.name,
		Short: p.short,
		Long: p.long + `

--store names the store that the table stands beside. Without it, the store is taken from
` + storeVariable + `, which keeps a password out of the process list. No table is created.`,
		Example: b.example("list", "--state blocked,dead") + "\n" + b.example("retry", "--"+p.kind+" order.placed --dry-run"),
		Args:    aCommand,
	}
	f := cmd.PersistentFlags()
	b.flags(f, sqlStores, `prefix of the table names (default "everonce_")`)
	if p.consumers {
		f.StringVar(&b.consumer, "consumer", "", "the consumer whose messages are meant")
	}
	cmd.AddCommand(a.backlogList(b), a.backlogShow(b), a.backlogRetry(b), a.backlogDiscard(b), a.backlogStats(b))
	switch p.name {
	case "outbox":
		names = "list, show, retry, discard, stats or relay"
		cmd.AddCommand(a.relay(b))
	case "saga":
		names = "list, show, retry, abort, skip, discard or stats"
		cmd.AddCommand(a.sagaAbort(b), a.sagaSkip(b))
	}
	cmd.RunE = func(*cobra.Command, []string) error { return usagef("%s needs a command: %s", p.name, names) }
	return cmd
}

// backlogFlags are the flags of all backlog commands.
type backlogFlags struct {
	storeFlags
	pattern              *pattern
	consumer, secretFile string
}

// example returns an example call of a command.
func (b *backlogFlags) example(command, rest string) string {
	consumer := ""
	if b.pattern.consumers {
		consumer = " --consumer billing"
	}
	return strings.TrimRight("  everonce "+b.pattern.name+" "+command+" --store sqlite:shop.db"+consumer+" "+rest, " ")
}

// open opens the store, and returns the table beside it.
func (b *backlogFlags) open(cmd *cobra.Command) (storeurl.Store, *beside, error) {
	if b.pattern.consumers && b.consumer == "" {
		return nil, nil, usagef("which consumer? Give --consumer")
	}
	store, err := b.storeFlags.open(cmd)
	if err != nil {
		return nil, nil, err
	}
	table, err := b.table(store)
	if err != nil {
		store.Close() //nolint:errcheck // nothing was asked of it
		return nil, nil, err
	}
	return store, table, nil
}

func (b *backlogFlags) table(store storeurl.Store) (*beside, error) {
	opts, err := (&address{secretFile: b.secretFile}).identity()
	if err != nil {
		return nil, err
	}
	return b.pattern.of(store, b.consumer, opts)
}

// entryFilter selects entries.
type entryFilter struct {
	states             []string
	kind, orderKey, id string
	olderThan          time.Duration
	seq, after         int64
	limit              int
}

func (w *entryFilter) flags(p *pattern, f *pflag.FlagSet) {
	f.StringSliceVar(&w.states, "state", nil, "only these states; separate them with commas, or repeat the flag")
	f.StringVar(&w.kind, p.kind, "", "only entries of this "+p.kind)
	if p.name != "saga" { // which has no order
		f.StringVar(&w.orderKey, "order-key", "", "only entries with this order key")
	}
	f.StringVar(&w.id, "id", "", "only the entry with this ID")
	f.Int64Var(&w.seq, "seq", 0, "only the entry with this number")
	f.Lookup("seq").DefValue = ""
	f.Var((*duration.Value)(&w.olderThan), "older-than", "only entries inserted longer ago than this, like 24h or 30d")
	f.Lookup("older-than").DefValue = "" // 0s is no bound
}

// filter reads the flags. It rejects an empty value, such as that from an unset variable, which would select
// everything.
func (w *entryFilter) filter(cmd *cobra.Command) (f backlog.Filter, err error) {
	givenFlags(cmd, func(given *pflag.Flag) {
		if v := given.Value.String(); v == "" || given.Value.Type() != "string" && (v == "[]" || v == "0" || v == "0s") {
			err = usagef("--%s is empty; leave it out for any", given.Name)
		}
	})
	if err != nil {
		return f, err
	}
	f = backlog.Filter{Seq: w.seq, Kind: w.kind, OrderKey: w.orderKey, ID: w.id, OlderThan: w.olderThan, After: w.after, Limit: w.limit}
	for _, s := range w.states {
		f.States = append(f.States, backlog.State(s))
	}
	return f, nil
}

// givenFlags calls fn for each local flag of the command that was given.
func givenFlags(cmd *cobra.Command, fn func(*pflag.Flag)) {
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Changed {
			fn(f)
		}
	})
}

// stateNames are the states that an entry may have.
func stateNames() []string {
	var names []string
	for _, s := range []backlog.State{backlog.Pending, backlog.InHand, backlog.Blocked, backlog.Dead, backlog.Done, backlog.Discarded} {
		names = append(names, string(s))
	}
	return names
}

func (a *app) backlogList(b *backlogFlags) *cobra.Command {
	var w entryFilter
	p := b.pattern
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List " + p.entry + "s, by state, " + p.kind + " and age",
		Long: `list writes the ` + p.entry + `s of the table, a page at a time, in the order in which they were
inserted. With --json each is one object per line.

States: pending (waits for its time, or for a later try), in_hand (a process works on it),
blocked (set aside; later entries with the same order key wait), dead (set aside; later
entries go on), done (kept until its retention ends), discarded (given up).`,
		Example: b.example("list", "--state blocked,dead") + "\n" + b.example("list", "--older-than 1h --json"),
		Args:    noArgs,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			if w.limit < 1 || w.limit > maxPage {
				return usagef("--limit is %d, must be from 1 to %d", w.limit, maxPage)
			}
			f, err := w.filter(cmd)
			if err != nil {
				return err
			}
			store, table, err := b.open(cmd)
			if err != nil {
				return err
			}
			defer store.Close() //nolint:errcheck // it was only read
			found, err := table.backlog.List(cmd.Context(), f)
			if err != nil {
				return err
			}
			entries := make([]inspect.Entry, len(found))
			for i := range found {
				entries[i] = inspect.EntryOf(&found[i], p.kind)
			}
			return a.writeEntries(b, entries, len(entries) == w.limit)
		}),
	}
	f := cmd.Flags()
	w.flags(p, f)
	complete(cmd, "state", stateNames()...)
	f.Int64Var(&w.after, "after", 0, "start after this seq: the last one of the previous page")
	f.IntVar(&w.limit, "limit", defaultPage, "the most entries to list")
	return cmd
}

func (a *app) writeEntries(b *backlogFlags, entries []inspect.Entry, more bool) error {
	if b.json {
		for i := range entries {
			if err := a.write(true, &entries[i], nil); err != nil {
				return err
			}
		}
		return nil
	}
	if err := inspect.WriteEntries(a.out, entries, b.pattern.kind); err != nil {
		return err
	}
	if more {
		fmt.Fprintf(a.err, "There may be more: --after %d\n", entries[len(entries)-1].Seq)
	}
	return nil
}

func (a *app) backlogShow(b *backlogFlags) *cobra.Command {
	var id string
	var seq int64
	var payload bool
	p := b.pattern
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show one " + p.entry,
		Long: `show writes everything known about one ` + p.entry + `. Its content may be private, so it is
written only with --payload. An entry that cannot be read is shown as far as possible, with
its error; --seq, its number in the list, finds it whatever its ID is.`,
		Example: b.example("show", "--id 0198f7c2-1f6a-7d3e-8a55-0d7d3b1f9a10 --payload"),
		Args:    noArgs,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			if (id == "") == (seq == 0) {
				return usagef("which %s? Give --id or --seq", p.entry)
			}
			store, table, err := b.open(cmd)
			if err != nil {
				return err
			}
			defer store.Close() //nolint:errcheck // it was only read
			found, err := table.backlog.List(cmd.Context(), backlog.Filter{ID: id, Seq: seq, Limit: 1})
			switch {
			case err != nil:
				return err
			case len(found) == 0:
				return fmt.Errorf("%w: it may have been removed after its retention, or never existed", errNoEntry)
			}
			e := inspect.EntryOf(&found[0], p.kind)
			err = table.content(cmd.Context(), &e, payload)
			if err != nil && !errors.Is(err, everonce.ErrCorruptRecord) && !errors.Is(err, everonce.ErrNotFound) {
				return err
			}
			if err != nil {
				e.Error = cmp.Or(e.Error, err.Error())
			}
			return a.write(b.json, &e, func() error { return inspect.WriteEntry(a.out, &e) })
		}),
	}
	cmd.Flags().StringVar(&id, "id", "", "ID of the entry to show")
	cmd.Flags().Int64Var(&seq, "seq", 0, "its number, in place of --id")
	cmd.Flags().Lookup("seq").DefValue = ""
	cmd.Flags().BoolVar(&payload, "payload", false, "also show the content: headers and payload, or input and outputs")
	if p.name == "saga" { // its steps are in a record
		cmd.Flags().StringVar(&b.secretFile, "identity-secret-file", "", "file with the store's identity secret, if it has one (a line end is not part of it)")
	}
	return cmd
}

func (a *app) backlogStats(b *backlogFlags) *cobra.Command {
	p := b.pattern
	types := ""
	if p.consumers {
		types = `

Then it lists the types of the waiting messages, and for each how many were never tried and
how long the oldest of them has been due. If that time grows, no running worker has a
handler for the type.`
	}
	return &cobra.Command{
		Use:   "stats",
		Short: "Count the " + p.entry + "s that are not done",
		Long: `stats counts the ` + p.entry + `s that are due or wait for a later try (waiting), are being handled,
wait for their time (delayed), or were set aside (blocked, dead). lag is the age of the
oldest that is due. It reads all of them.` + types,
		Example: b.example("stats", "--json"),
		Args:    noArgs,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			store, table, err := b.open(cmd)
			if err != nil {
				return err
			}
			defer store.Close() //nolint:errcheck // it was only read
			s, err := table.backlog.Stats(cmd.Context())
			if err != nil {
				return err
			}
			var kinds []backlog.KindStats
			if p.consumers {
				if kinds, err = table.backlog.Kinds(cmd.Context()); err != nil {
					return err
				}
			}
			f := inspect.FiguresOf(s, kinds)
			return a.write(b.json, f, func() error { return inspect.WriteFigures(a.out, f) })
		}),
	}
}
