package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/everonce/everonce/cmd/everonce/internal/deadletters"
	"github.com/everonce/everonce/cmd/everonce/internal/storeurl"
	"github.com/everonce/everonce/consume"
)

const replayLong = `replay puts copies of dead letters back into the queues that they came from, with their
original key and headers, and with their retries reset to zero. A letter is removed when
the broker has confirmed its copy; if its queue no longer exists, the letter is kept. A
copy whose work was already done is a duplicate and is acknowledged; otherwise it runs.
Settle letters whose outcome is unknown ("everonce keys settle") before you replay them, or
they come back: "dlq list" shows how often each was replayed, and --max-replays leaves
alone those that were replayed so often.

replay asks before it writes, unless --yes is given; --dry-run only lists the letters. A
line of JSON on standard error says who replayed how many.`

func (a *app) dlqReplay(b *brokerFlags) *cobra.Command {
	return a.dlqMove(b, &move{
		done: "replayed", again: true, ask: "Replay %s? Type yes: ",
		act: func(ctx context.Context, l consume.DeadLetters, f consume.Filter) (int, error) {
			return l.Replay(ctx, f)
		},
	}, &cobra.Command{
		Use:   "replay",
		Short: "Put dead letters back into their queues",
		Long:  replayLong,
		Example: "  everonce dlq replay --broker amqp://localhost --queue orders --reason exhausted --dry-run\n" +
			"  everonce dlq replay --queue orders --letter a13e… --yes",
	})
}

func (a *app) dlqDiscard(b *brokerFlags) *cobra.Command {
	return a.dlqMove(b, &move{
		done: "discarded", ask: "Discard %s? This cannot be undone. Type yes: ", choose: true,
		act: func(ctx context.Context, l consume.DeadLetters, f consume.Filter) (int, error) {
			return l.Discard(ctx, f)
		},
	}, &cobra.Command{
		Use:   "discard",
		Short: "Remove dead letters for good",
		Long: `discard removes dead letters: what they asked for is never done. Say which ones, or --all.

discard asks before it writes, unless --yes is given; --dry-run only lists the letters.
Lines of JSON on standard error say who discarded how many, and each of them, by its key's
hash. Keep them: they are then the only trace of these letters.`,
		Example: "  everonce dlq discard --broker amqp://localhost --queue orders --reason no_key --older-than 720h",
	})
}

// move takes letters out of the dead-letter queue.
type move struct {
	done, ask string
	choose    bool // the command needs a filter, or --all
	again     bool // a letter may come back and be replayed again
	act       func(context.Context, consume.DeadLetters, consume.Filter) (int, error)
}

// moved is the JSON output of a move.
type moved struct {
	// Done is how many letters were replayed or discarded: 0 in a dry run.
	Done int `json:"done"`
	// Missed is how many letters were found at first and not again: another consumer moved or holds them.
	Missed int `json:"missed,omitempty"`
	// Letters are the letters that a dry run found.
	Letters []deadletters.DeadLetter `json:"letters,omitempty"`
	DryRun  bool                     `json:"dry_run,omitempty"`
	// Consumers is how many other consumers may hold further letters.
	Consumers int `json:"consumers,omitempty"`
}

var (
	errNotMoved = errors.New("nothing was done")
	errNoLetter = errors.New("there is no such dead letter")
)

func (a *app) dlqMove(b *brokerFlags, m *move, cmd *cobra.Command) *cobra.Command {
	var w which
	var limit, maxReplays int
	var dryRun, yes, all bool
	cmd.Args = noArgs
	cmd.RunE = a.run(func(cmd *cobra.Command, _ []string) error {
		f, err := w.filter(b, limit)
		switch {
		case err != nil:
			return err
		case limit < 1 && cmd.Flags().Changed("limit"):
			return usagef("--limit is %d, must be at least 1", limit)
		case maxReplays < 1 && cmd.Flags().Changed("max-replays"):
			return usagef("--max-replays is %d, must be at least 1", maxReplays)
		case m.choose && w.anything() && limit == 0 && !all:
			return usagef("which letters? Give --letter, --key, --reason, --older-than, --newer-than or --limit, or --all")
		}
		if maxReplays > 0 {
			f.Only = func(letter *consume.DeadLetter) bool { return letter.Replays < maxReplays }
		}
		l, others, err := a.look(cmd, b)
		if err != nil {
			return err
		}
		defer l.Close() //nolint:errcheck // what the broker has confirmed is done
		var unreadable error
		found, seen, list := 0, map[string]int{}, moved{DryRun: dryRun, Consumers: others}
		for letter, err := range l.All(cmd.Context(), f) {
			if fails(err) {
				return err
			}
			if unreadable = err; err != nil {
				break
			}
			seen[letter.ID]++
			if found++; dryRun {
				list.Letters = append(list.Letters, deadletters.Of(&letter, false))
			}
		}
		if dryRun || found == 0 {
			return errors.Join(a.write(b.json, list, func() error { return deadletters.WriteList(a.out, list.Letters) }), unreadable)
		}
		if err := a.confirmed(yes, confirmation{
			question: fmt.Sprintf(m.ask, many(found, "dead letter")),
			instead:  "add --yes to go ahead, or --dry-run to see what would be done",
			no:       errNotMoved,
		}); err != nil {
			return err
		}
		f.Limit = found
		var last *consume.DeadLetter // the letter taken last; those before it are removed
		taken := 0
		f.Only = func(letter *consume.DeadLetter) bool { // only the letters that were found, none that came later
			seen[letter.ID]--
			if seen[letter.ID] < 0 {
				return false
			}
			if m.choose {
				a.auditGone(cmd.Context(), b, last)
				last = &consume.DeadLetter{ID: letter.ID, Death: letter.Death}
			}
			taken++
			return true
		}
		n, err := m.act(cmd.Context(), l, f)
		if n == taken { // otherwise an error may have left the last one in place
			a.auditGone(cmd.Context(), b, last)
		}
		a.auditMove(cmd.Context(), b, m, n, found, err)
		if err != nil {
			return fmt.Errorf("%d of %d were %s before this error: %w", n, found, m.done, err)
		}
		return a.write(b.json, moved{Done: n, Missed: found - n, Consumers: others}, func() error {
			count, missed := many(n, "dead letter"), ""
			if n < found {
				count = fmt.Sprintf("%d of %s", n, many(found, "dead letter"))
				missed = ": the others were moved, or are held by another consumer"
			}
			_, err := fmt.Fprintf(a.out, "%s %s%s\n", m.done, count, missed)
			return err
		})
	})
	w.flags(cmd)
	flags := cmd.Flags()
	flags.IntVar(&limit, "limit", 0, "the most letters to take (default: all that the other flags select)")
	flags.BoolVar(&dryRun, "dry-run", false, "only list the letters that this would affect")
	flags.BoolVar(&yes, "yes", false, "do not ask")
	if m.again {
		flags.IntVar(&maxReplays, "max-replays", 0, "skip letters that were replayed this often already (default: none)")
	}
	if m.choose {
		flags.BoolVar(&all, "all", false, "discard all of them")
	}
	return cmd
}

// auditMove logs who did what.
func (a *app) auditMove(ctx context.Context, b *brokerFlags, m *move, n, found int, err error) {
	log := slog.New(slog.NewJSONHandler(printable{a.err}, nil)).With(slog.String("by", whoAmI()), slog.String("queue", b.queue), slog.Int("letters", n))
	if n < found && err == nil {
		log = log.With(slog.Int("missed", found-n))
	}
	if err != nil {
		log.LogAttrs(ctx, slog.LevelError, "not all "+m.done, slog.String("error", storeurl.Redact(err.Error())))
		return
	}
	log.LogAttrs(ctx, slog.LevelInfo, m.done)
}

// auditGone logs a discarded letter at once: no other trace of it remains, even if this program is killed.
func (a *app) auditGone(ctx context.Context, b *brokerFlags, gone *consume.DeadLetter) {
	if gone == nil {
		return
	}
	slog.New(slog.NewJSONHandler(printable{a.err}, nil)).LogAttrs(ctx, slog.LevelInfo, "a letter is discarded", slog.String("by", whoAmI()), slog.String("queue", b.queue),
		slog.String("letter", gone.ID), slog.String("key", gone.KeyHash), slog.String("reason", string(gone.Reason)))
}

// printable writes lines of JSON without terminal control characters, which a letter's author could have put there.
type printable struct{ out io.Writer }

func (p printable) Write(line []byte) (int, error) {
	_, err := p.out.Write(append(graphic(bytes.TrimSuffix(line, []byte("\n"))), '\n'))
	return len(line), err
}
