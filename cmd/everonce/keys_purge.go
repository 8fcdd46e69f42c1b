package main

import (
	"context"
	"fmt"
	"math"

	"github.com/spf13/cobra"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// purged is the JSON output of purge.
type purged struct {
	Results int `json:"results"`
	Records int `json:"records"`
}

// keysPurge removes expired results and records.
func (a *app) keysPurge(s *storeFlags) *cobra.Command {
	var batch int
	cmd := &cobra.Command{
		Use:   "purge",
		Short: "Remove results and records whose time is over",
		Long: `purge removes results whose retention is over, and records that need not be remembered
any longer, in batches that do not hold up the application. It removes nothing else: no
claim, and no unknown outcome. An application with a janitor does not need it.
"everonce purge" does this and more: it also removes old rows of outbox and inbox.`,
		Example: "  everonce keys purge --store sqlite:payments.db",
		Args:    noArgs,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			if batch < 1 || batch > maxPage {
				return usagef("--batch is %d, must be from 1 to %d", batch, maxPage)
			}
			store, err := s.open(cmd)
			if err != nil {
				return err
			}
			defer store.Close() //nolint:errcheck // what was removed is removed
			total, err := purge(cmd.Context(), store, batch, math.MaxInt)
			if err != nil {
				return err
			}
			return a.write(s.json, total, func() error {
				_, err := fmt.Fprintf(a.out, "removed %s and %s\n", many(total.Results, "result"), many(total.Records, "record"))
				return err
			})
		}),
	}
	cmd.Flags().IntVar(&batch, "batch", 1000, "how many to remove at a time")
	return cmd
}

// purge removes one batch after the other until none is left, or limit is reached.
func purge(ctx context.Context, store everonce.Store, batch, limit int) (total purged, err error) {
	for more := true; more && total.Results+total.Records < limit; {
		res, err := store.Purge(ctx, driver.PurgeRequest{Limit: min(batch, limit-total.Results-total.Records)})
		if err != nil {
			return total, err
		}
		total.Results += res.Results
		total.Records += res.Records
		more = res.More
	}
	return total, nil
}
