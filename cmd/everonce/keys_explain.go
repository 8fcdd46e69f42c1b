package main

import (
	"github.com/spf13/cobra"

	"github.com/everonce/everonce/cmd/everonce/internal/inspect"
)

// keysExplain explains one operation.
func (a *app) keysExplain(s *storeFlags) *cobra.Command {
	var where address
	cmd := &cobra.Command{
		Use:   "explain",
		Short: "Explain what the next delivery of an operation would get",
		Long: `explain says in sentences how an operation came to its present state, what its next
delivery would get, and why: replayed, refused, or run again. It calls no other service and
changes nothing. If the answer depends on the policy for the unknown, which belongs to the
receiver and is not in the record, explain says what happens under each policy.`,
		Example: "  everonce keys explain --store sqlite:payments.db --scope shop/payments --id payment-000007",
		Args:    noArgs,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			store, got, err := where.find(cmd, s)
			if err != nil {
				return err
			}
			defer store.Close() //nolint:errcheck // it was only read
			x := inspect.Explain(&got.Record, got.Now, s.words())
			return a.write(s.json, x, func() error { return inspect.WriteExplanation(a.out, &x) })
		}),
	}
	where.flags(cmd)
	return cmd
}
