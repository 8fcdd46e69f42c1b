package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/everonce/everonce/backlog"
	"github.com/everonce/everonce/cmd/everonce/internal/storeurl"
)

// change describes what is done to entries.
type change struct {
	done, ask string
	choose    bool // the command needs a filter, or --all
	act       func(*backlog.Table, context.Context, backlog.Filter) (int, error)
}

// changed is the JSON output of a change.
type changed struct {
	// Found is how many entries were selected, Done how many of them were retried or discarded: 0 in a dry run.
	Found  int  `json:"found"`
	Done   int  `json:"done"`
	DryRun bool `json:"dry_run,omitempty"`
}

const whichOnes = `Without --state it takes the entries that were set aside; it never takes one that a process
works on. It asks before it changes more than one, unless --yes is given; --dry-run only
counts them. A line of JSON on standard error says who %s how many.`

func (a *app) backlogRetry(b *backlogFlags) *cobra.Command {
	e := b.pattern.entry
	return a.backlogChange(b, &change{done: "retried", ask: "Retry %s? Type yes: ", act: (*backlog.Table).Retry}, &cobra.Command{
		Use:   "retry",
		Short: "Have " + e + "s tried again at once",
		Long: `retry has ` + e + `s tried again at once, and resets their attempts. With --state pending it takes
those that wait for a later try, and those that wait for their time.

` + fmt.Sprintf(whichOnes, "retried"),
		Example: b.example("retry", "--"+b.pattern.kind+" order.placed --dry-run") + "\n" + b.example("retry", "--id e-17"),
	})
}

func (a *app) backlogDiscard(b *backlogFlags) *cobra.Command {
	e := b.pattern.entry
	return a.backlogChange(b, &change{done: "discarded", ask: "Discard %s? This cannot be undone. Type yes: ", choose: true, act: (*backlog.Table).Discard}, &cobra.Command{
		Use:   "discard",
		Short: "Give " + e + "s up",
		Long: `discard gives ` + e + `s up: they are not tried again. They are kept as discarded until their
retention ends. Say which ones, or --all.

` + fmt.Sprintf(whichOnes, "discarded"),
		Example: b.example("discard", "--id e-17") + "\n" + b.example("discard", "--older-than 30d --dry-run"),
	})
}

func (a *app) backlogChange(b *backlogFlags, c *change, cmd *cobra.Command) *cobra.Command {
	var w entryFilter
	var dryRun, yes, all bool
	p := b.pattern
	cmd.Args = noArgs
	cmd.RunE = a.run(func(cmd *cobra.Command, _ []string) error {
		f, err := w.filter(cmd)
		switch {
		case err != nil:
			return err
		case w.limit < 0:
			return usagef("--limit is %d, must be at least 1", w.limit)
		case c.choose && !all && len(f.States) == 0 && f.Kind+f.OrderKey+f.ID == "" && f.Seq == 0 && f.OlderThan == 0 && f.Limit == 0:
			return usagef("which %ss? Give --id, --%s, --state, --older-than or --limit, or --all", p.entry, p.kind)
		}
		for _, s := range f.States {
			if s == backlog.InHand || s == backlog.Done {
				return usagef("what is %s cannot be %s", s, c.done)
			}
		}
		if len(f.States) == 0 {
			f.States = []backlog.State{backlog.Blocked, backlog.Dead}
		}
		store, table, err := b.open(cmd)
		if err != nil {
			return err
		}
		defer store.Close() //nolint:errcheck // what was written is durable
		found, err := table.backlog.Count(cmd.Context(), f)
		switch {
		case err != nil:
			return err
		case found == 0 && (f.ID != "" || f.Seq != 0):
			return fmt.Errorf("%w in such a state: see \"%s show\"", errNoEntry, p.name)
		case dryRun || found == 0:
			return a.writeChanged(b, c, changed{Found: found, DryRun: dryRun})
		}
		if err := a.confirmed(yes || found == 1, confirmation{
			question: fmt.Sprintf(c.ask, many(found, p.entry)),
			instead:  "add --yes to go ahead, or --dry-run to see how many there are",
			no:       errNotMoved,
		}); err != nil {
			return err
		}
		f.Limit = found // and not what came since
		n, err := c.act(table.backlog, cmd.Context(), f)
		a.auditChange(cmd, b, c.done, n, err)
		if err != nil {
			return err
		}
		return a.writeChanged(b, c, changed{Found: found, Done: n})
	})
	flags := cmd.Flags()
	w.flags(p, flags)
	complete(cmd, "state", string(backlog.Pending), string(backlog.Blocked), string(backlog.Dead))
	flags.IntVar(&w.limit, "limit", 0, "the most entries to change (default: all that the other flags select)")
	flags.BoolVar(&dryRun, "dry-run", false, "only count the entries that this would change")
	flags.BoolVar(&yes, "yes", false, "do not ask")
	if c.choose {
		flags.BoolVar(&all, "all", false, "discard all that were set aside")
	}
	return cmd
}

func (a *app) writeChanged(b *backlogFlags, c *change, v changed) error {
	return a.write(b.json, v, func() error {
		switch count := many(v.Found, b.pattern.entry); {
		case v.DryRun:
			_, err := fmt.Fprintf(a.out, "%s would be %s\n", count, c.done)
			return err
		case v.Done < v.Found:
			_, err := fmt.Fprintf(a.out, "%s %d of %s: the others are being handled now, or are done\n", c.done, v.Done, count)
			return err
		default:
			_, err := fmt.Fprintf(a.out, "%s %s\n", c.done, count)
			return err
		}
	})
}

// auditChange logs who changed what.
func (a *app) auditChange(cmd *cobra.Command, b *backlogFlags, done string, n int, err error) {
	var filter []string
	givenFlags(cmd, func(f *pflag.Flag) {
		switch {
		case f.Name == "order-key", f.Name == "id" && b.pattern.consumers: // a message's ID is its key, which is in no log
			filter = append(filter, "--"+f.Name+"=…")
		case f.Name != "yes":
			filter = append(filter, "--"+f.Name+"="+f.Value.String())
		}
	})
	log := slog.New(slog.NewJSONHandler(printable{a.err}, nil)).With(slog.String("by", whoAmI()), slog.String("table", b.pattern.name))
	if b.consumer != "" {
		log = log.With(slog.String("consumer", b.consumer))
	}
	log = log.With(slog.String("filter", strings.Join(filter, " ")), slog.Int("entries", n), slog.String("store", storeurl.Name(b.url)))
	if err != nil {
		log.LogAttrs(cmd.Context(), slog.LevelError, "not "+done, slog.String("error", storeurl.Redact(err.Error())))
		return
	}
	log.LogAttrs(cmd.Context(), slog.LevelInfo, done)
}
