package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/everonce/everonce/cmd/everonce/internal/deadletters"
	"github.com/everonce/everonce/consume"
)

// letterList is the JSON output of a listing.
type letterList struct {
	Letters []deadletters.DeadLetter `json:"letters"`
	// Consumers is how many other consumers may hold further letters.
	Consumers int `json:"consumers,omitempty"`
}

// letterCount is the JSON output of a count.
type letterCount struct {
	Letters   int            `json:"letters"`
	Reasons   map[string]int `json:"reasons"`
	Consumers int            `json:"consumers,omitempty"` // as in letterList
}

func (a *app) dlqList(b *brokerFlags) *cobra.Command {
	var w which
	var limit int
	var count bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List or count dead letters, by reason, key and age",
		Long: `list writes the dead letters of a queue, one per line: its ID, the reason, the hash of its
key, how often it was tried, when it became a dead letter, and the details. All letters
stay where they are.`,
		Example: "  everonce dlq list --broker amqp://localhost --queue orders\n" +
			"  everonce dlq list --queue orders --reason unknown,exhausted --older-than 24h --json\n" +
			"  everonce dlq list --queue orders --count",
		Args: noArgs,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			f, err := w.page(b, limit)
			if err != nil {
				return err
			}
			if count {
				if cmd.Flags().Changed("limit") {
					return usagef("give either --count, which counts all letters, or --limit")
				}
				f.Limit = 0
				return a.count(cmd, b, f)
			}
			l, unreadable := a.page(cmd, b, f, false)
			if fails(unreadable) {
				return unreadable
			}
			return errors.Join(a.write(b.json, l, func() error { return deadletters.WriteList(a.out, l.Letters) }), unreadable)
		}),
	}
	w.flags(cmd)
	cmd.Flags().IntVar(&limit, "limit", defaultPage, "the most letters to show")
	cmd.Flags().BoolVar(&count, "count", false, "only count them, by reason")
	return cmd
}

// page is filter with a limit on how many letters are shown.
func (w *which) page(b *brokerFlags, limit int) (consume.Filter, error) {
	if limit < 1 || limit > maxPage {
		return consume.Filter{}, usagef("--limit is %d, must be from 1 to %d", limit, maxPage)
	}
	return w.filter(b, limit)
}

// page returns the selected letters, and says when there may be more.
func (a *app) page(cmd *cobra.Command, b *brokerFlags, f consume.Filter, data bool) (l letterList, err error) {
	l.Letters = []deadletters.DeadLetter{}
	l.Consumers, err = a.each(cmd, b, f, func(letter *consume.DeadLetter) { l.Letters = append(l.Letters, deadletters.Of(letter, data)) })
	if !fails(err) && !b.json && len(l.Letters) == f.Limit {
		fmt.Fprintln(a.err, "There may be more (use --limit, or list --count)")
	}
	return l, err
}

func (a *app) count(cmd *cobra.Command, b *brokerFlags, f consume.Filter) (err error) {
	c := letterCount{Reasons: map[string]int{}}
	var unreadable error
	if c.Consumers, unreadable = a.each(cmd, b, f, func(letter *consume.DeadLetter) {
		c.Letters++
		c.Reasons[string(letter.Reason)]++
	}); fails(unreadable) {
		return unreadable
	}
	return errors.Join(a.write(b.json, c, func() error { return deadletters.WriteCount(a.out, c.Letters, c.Reasons) }), unreadable)
}

func (a *app) dlqShow(b *brokerFlags) *cobra.Command {
	var w which
	var limit int
	var data bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show the chosen dead letters",
		Long: `show writes everything that a dead letter records: one letter, the letters of one key, or
the letters that the flags select. The message's headers and body may be private, so they
are written only with --data.`,
		Example: "  everonce dlq show --broker amqp://localhost --queue orders --key 5f0c… --data --json\n" +
			"  everonce dlq show --queue orders --letter a13e…",
		Args: noArgs,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			f, err := w.page(b, limit)
			switch {
			case err != nil:
				return err
			case w.anything():
				return usagef("which letters? Give --letter or --key, as \"dlq list\" writes them, or --reason, --older-than or --newer-than")
			}
			l, unreadable := a.page(cmd, b, f, data)
			if fails(unreadable) {
				return unreadable
			}
			if len(l.Letters) == 0 {
				return errors.Join(errNoLetter, unreadable)
			}
			return errors.Join(a.write(b.json, l, func() error { return deadletters.Write(a.out, l.Letters) }), unreadable)
		}),
	}
	w.flags(cmd)
	cmd.Flags().IntVar(&limit, "limit", defaultPage, "the most letters to show")
	cmd.Flags().BoolVar(&data, "data", false, "also show the message's headers and body")
	return cmd
}

// fails reports whether an error leaves nothing to show. Letters that cannot be read are reported after the readable
// ones.
func fails(err error) bool { return err != nil && !errors.Is(err, consume.ErrUnreadable) }

// each calls fn for each selected letter, and closes the broker connection. Its error may say that a letter cannot be
// read.
func (a *app) each(cmd *cobra.Command, b *brokerFlags, f consume.Filter, fn func(*consume.DeadLetter)) (others int, err error) {
	l, others, err := a.look(cmd, b)
	if err != nil {
		return 0, err
	}
	defer l.Close() //nolint:errcheck // it was only read
	for letter, err := range l.All(cmd.Context(), f) {
		if err != nil {
			return others, err
		}
		fn(&letter)
	}
	return others, nil
}
