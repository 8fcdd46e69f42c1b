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

func (a *app) dlqList(b *brokerFlags) *cobra.Command {
	var w which
	var limit int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List dead letters, by reason, key and age",
		Long: `list writes the dead letters of a queue, one a line: why, the hash of the key, how often
it was tried, when it became a dead letter, and what is said of it. All stay where they are.`,
		Example: "  everonce dlq list --broker amqp://localhost --queue orders\n" +
			"  everonce dlq list --queue orders --reason unknown,exhausted --older-than 24h --json",
		Args: noArgs,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			if limit < 1 || limit > maxPage {
				return usagef("--limit is %d, must be from 1 to %d", limit, maxPage)
			}
			f, err := w.filter(limit)
			if err != nil {
				return err
			}
			found, err := a.list(cmd, b, f)
			if err != nil {
				return err
			}
			l := letterList{Letters: letters.Of(found, false)}
			return a.write(b.json, l, func() error { return letters.WriteList(a.out, l.Letters) })
		}),
	}
	w.flags(cmd)
	cmd.Flags().IntVar(&limit, "limit", defaultPage, "how many at the most")
	return cmd
}

func (a *app) dlqShow(b *brokerFlags) *cobra.Command {
	var key string
	var data bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show all that is known of the dead letters of one key",
		Long: `show writes all that a dead letter says of itself. The message's headers and its body may
be private: they are written only with --data.`,
		Example: "  everonce dlq show --broker amqp://localhost --queue orders --key 5f0c… --data --json",
		Args:    noArgs,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			if key == "" {
				return usagef("which letter? Give --key and the key's hash, as \"dlq list\" writes it")
			}
			w := which{key: key}
			f, err := w.filter(0)
			if err != nil {
				return err
			}
			found, err := a.list(cmd, b, f)
			if err != nil {
				return err
			}
			if len(found) == 0 {
				return fmt.Errorf("%w with the key %s", errNoLetter, key)
			}
			l := letterList{Letters: letters.Of(found, data)}
			return a.write(b.json, l, func() error { return letters.Write(a.out, l.Letters) })
		}),
	}
	cmd.Flags().StringVar(&key, "key", "", "the hash of its key, or its beginning")
	cmd.Flags().BoolVar(&data, "data", false, "with the message's headers and body")
	return cmd
}

// list asks for letters, and leaves.
func (a *app) list(cmd *cobra.Command, b *brokerFlags, f rabbitonce.Filter) ([]rabbitonce.Letter, error) {
	l, err := b.open(cmd)
	if err != nil {
		return nil, err
	}
	defer l.Close() //nolint:errcheck // it was only read
	return l.List(cmd.Context(), f)
}
