package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/everonce/everonce/cmd/everonce/internal/inspect"
)

func (a *app) sagaAbort(b *backlogFlags) *cobra.Command {
	return a.sagaOrder(b, "aborted", "Abort the saga %q? Its steps are compensated. Type yes: ",
		func(ctx context.Context, t *beside, id, _ string) error { return t.abort(ctx, id) }, &cobra.Command{
			Use:   "abort",
			Short: "Have a saga that has not ended compensated",
			Long: `abort has a saga that has not ended compensated. Its next turn comes at once. If a runner
is working on it and ends it first, nothing changes.

abort asks before it writes, unless --yes is given. A line of JSON on standard error says
who aborted it.`,
			Example: b.example("abort", "--id order-7"),
		})
}

func (a *app) sagaSkip(b *backlogFlags) *cobra.Command {
	return a.sagaOrder(b, "skipped", "Never run this compensation of the saga %q? This cannot be undone. Type yes: ",
		func(ctx context.Context, t *beside, id, step string) error { return t.skip(ctx, id, step) }, &cobra.Command{
			Use:   "skip",
			Short: "Mark a compensation as done that was made by hand",
			Long: `skip marks the compensation of a step as done without running it, because it was made by
hand. The saga goes on at once.

skip asks before it writes, unless --yes is given. A line of JSON on standard error says
who skipped it.`,
			Example: b.example("skip", "--id order-7 --step charge"),
		})
}

// sagaOrder returns a command that changes one saga.
func (a *app) sagaOrder(b *backlogFlags, done, ask string, give func(ctx context.Context, t *beside, id, step string) error, cmd *cobra.Command) *cobra.Command {
	var id, step string
	var yes bool
	cmd.Args = noArgs
	cmd.RunE = a.run(func(cmd *cobra.Command, _ []string) error {
		switch {
		case id == "":
			return usagef("which saga? Give --id")
		case step == "" && cmd.Flags().Lookup("step") != nil:
			return usagef("which step? Give --step")
		}
		store, table, err := b.open(cmd)
		if err != nil {
			return err
		}
		defer store.Close() //nolint:errcheck // what was written is durable
		if err := hasStep(cmd.Context(), table, id, step); err != nil {
			return err
		}
		if err := a.confirmed(yes, confirmation{question: fmt.Sprintf(ask, id), instead: "add --yes to go ahead", no: errNotMoved}); err != nil {
			return err
		}
		err = give(cmd.Context(), table, id, step)
		n := 1
		if err != nil {
			n = 0
		}
		a.auditChange(cmd, b, done, n, err)
		if err != nil {
			return err
		}
		return a.write(b.json, changed{Found: 1, Done: 1}, func() error {
			_, err := fmt.Fprintln(a.out, done)
			return err
		})
	})
	cmd.Flags().StringVar(&id, "id", "", "ID of the saga")
	if cmd.Name() == "skip" {
		cmd.Flags().StringVar(&step, "step", "", "the step whose compensation is skipped")
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// hasStep rejects a saga that does not exist, and a step that it has not begun: the name may be mistyped, and nothing
// would be skipped. If the store has an identity secret, the begun steps cannot be read without it.
func hasStep(ctx context.Context, table *beside, id, step string) error {
	e := inspect.Entry{ID: id}
	if err := table.content(ctx, &e, false); err != nil || step == "" || len(e.Steps) == 0 {
		return err
	}
	for _, s := range e.Steps {
		if s.Name == step {
			return nil
		}
	}
	return usagef("the saga has begun no step %q: see \"saga show\"", step)
}
