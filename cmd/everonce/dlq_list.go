package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/everonce/everonce/cmd/everonce/internal/letters"
	"github.com/everonce/everonce/consume/rabbitonce"
)

// letterList is what a listing writes as JSON.
type letterList struct {
	Letters []letters.Letter `json:"letters"`
}

// letterCount is what a count writes as JSON.
type letterCount struct {
	Letters int            `json:"letters"`
	Reasons map[string]int `json:"reasons"`
}

func (a *app) dlqList(b *brokerFlags) *cobra.Command {
	var w which
	var limit int
	var count bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List or count dead letters, by reason, key and age",
		Long: `list writes the dead letters of a queue, one a line: its ID, why, the hash of the key, how
often it was tried, when it became a dead letter, and what is said of it. All stay where
they are.`,
		Example: "  everonce dlq list --broker amqp://localhost --queue orders\n" +
			"  everonce dlq list --queue orders --reason unknown,exhausted --older-than 24h --json\n" +
			"  everonce dlq list --queue orders --count",
		Args: noArgs,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			if limit < 1 || limit > maxPage {
				return usagef("--limit is %d, must be from 1 to %d", limit, maxPage)
			}
			f, err := w.filter(b, limit)
			if err != nil {
				return err
			}
			if count {
				if cmd.Flags().Changed("limit") {
					return usagef("either --count, which is of all, or --limit")
				}
				f.Limit = 0
				return a.count(cmd, b, f)
			}
			l := letterList{Letters: []letters.Letter{}}
			err = a.each(cmd, b, f, func(letter *rabbitonce.Letter) { l.Letters = append(l.Letters, letters.Of(letter, false)) })
			if err != nil {
				return err
			}
			return a.write(b.json, l, func() error {
				if len(l.Letters) == limit {
					fmt.Fprintln(a.err, "There may be more: --limit, or --count")
				}
				return letters.WriteList(a.out, l.Letters)
			})
		}),
	}
	w.flags(cmd)
	cmd.Flags().IntVar(&limit, "limit", defaultPage, "how many at the most")
	cmd.Flags().BoolVar(&count, "count", false, "only how many there are, by reason")
	return cmd
}

func (a *app) count(cmd *cobra.Command, b *brokerFlags, f rabbitonce.Filter) error {
	c := letterCount{Reasons: map[string]int{}}
	if err := a.each(cmd, b, f, func(letter *rabbitonce.Letter) {
		c.Letters++
		c.Reasons[string(letter.Reason)]++
	}); err != nil {
		return err
	}
	return a.write(b.json, c, func() error { return letters.WriteCount(a.out, c.Letters, c.Reasons) })
}

func (a *app) dlqShow(b *brokerFlags) *cobra.Command {
	var w which
	var data bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show all that is known of one dead letter, or of those of one key",
		Long: `show writes all that a dead letter says of itself. The message's headers and its body may
be private: they are written only with --data.`,
		Example: "  everonce dlq show --broker amqp://localhost --queue orders --key 5f0c… --data --json\n" +
			"  everonce dlq show --queue orders --letter a13e…",
		Args: noArgs,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			if w.anything() {
				return usagef("which letter? Give --letter or --key, as \"dlq list\" writes them")
			}
			f, err := w.filter(b, 0)
			if err != nil {
				return err
			}
			var l letterList
			err = a.each(cmd, b, f, func(letter *rabbitonce.Letter) { l.Letters = append(l.Letters, letters.Of(letter, data)) })
			if err != nil {
				return err
			}
			if len(l.Letters) == 0 {
				return errNoLetter
			}
			return a.write(b.json, l, func() error { return letters.Write(a.out, l.Letters) })
		}),
	}
	cmd.Flags().Var(&w.letter, "letter", "its ID, or the beginning of that")
	cmd.Flags().Var(&w.key, "key", "the hash of its key, or the beginning of that")
	cmd.Flags().BoolVar(&data, "data", false, "with the message's headers and body")
	return cmd
}

// each looks at the letters that are meant, one after the other, and leaves.
func (a *app) each(cmd *cobra.Command, b *brokerFlags, f rabbitonce.Filter, fn func(*rabbitonce.Letter)) error {
	l, err := b.open(cmd)
	if err != nil {
		return err
	}
	defer l.Close() //nolint:errcheck // it was only read
	for letter, err := range l.All(cmd.Context(), f) {
		if err != nil {
			return err
		}
		fn(&letter)
	}
	return nil
}
