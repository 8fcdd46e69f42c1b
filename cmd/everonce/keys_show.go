package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/everonce/everonce/cmd/everonce/internal/inspect"
)

// shown is the JSON output of show.
type shown struct {
	inspect.Record
	Now time.Time `json:"now"`
}

// keysShow shows one operation.
func (a *app) keysShow(s *storeFlags) *cobra.Command {
	var where address
	var data bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show one operation",
		Long: `show writes everything that a store knows about one operation: who claimed it and when,
in which attempt, what the claim found, and its steps. The results themselves may be
private, so they are written only with --data.`,
		Example: "  everonce keys show --store sqlite:payments.db --scope shop/payments --id payment-000007\n" +
			"  everonce keys show --store sqlite:payments.db --record 5f0c… --data --json",
		Args: noArgs,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			store, got, err := where.find(cmd, s)
			if err != nil {
				return err
			}
			defer store.Close() //nolint:errcheck // it was only read
			r := shown{Record: inspect.Of(&got.Record, got.Now, data), Now: got.Now}
			return a.write(s.json, r, func() error { return inspect.WriteRecord(a.out, &r.Record, got.Now) })
		}),
	}
	where.flags(cmd)
	cmd.Flags().BoolVar(&data, "data", false, "also show the data of the results")
	return cmd
}
