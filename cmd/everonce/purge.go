package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/cmd/everonce/internal/duration"
	"github.com/everonce/everonce/cmd/everonce/internal/storeurl"
)

// swept is the JSON output of purge.
type swept struct {
	purged
	// Entries is how many rows were removed, by the pattern's name, and how many sessions, if they were asked for. A
	// pattern without a table has no entry.
	Entries map[string]int `json:"entries,omitempty"`
}

// purge removes expired records and expired rows of the patterns.
func (a *app) purge() *cobra.Command {
	var s storeFlags
	var limit int
	keep := make([]time.Duration, len(patterns))
	var lease time.Duration
	cmd := &cobra.Command{
		Use:   "purge",
		Short: "Remove what is past its retention: records, rows of outbox, inbox and saga, and client sessions",
		Long: `purge removes results and records whose time is over, as "everonce keys purge" does, and the
rows of events, messages and sagas that were done or discarded longer ago than --outbox,
--inbox and --saga say, in batches that do not hold up the application. Give them the
service's retention, if that is longer. Entries that are pending or set aside are kept. A
table that does not exist is skipped. Client sessions are removed if --session gives their
lease: as long as the service says, or longer. A removed session refuses later requests.

Janitors, relays, workers and runners do this automatically: purge is for tables without one.`,
		Example: "  everonce purge --store sqlite:shop.db\n  everonce purge --store postgres://localhost/shop --outbox 7d --inbox 7d --limit 100000",
		Args:    noArgs,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			if limit < 0 || limit == 0 && cmd.Flags().Changed("limit") {
				return usagef("--limit is %d, must be at least 1", limit)
			}
			store, err := s.open(cmd)
			if err != nil {
				return err
			}
			defer store.Close() //nolint:errcheck // what was removed is removed
			if lease < time.Microsecond && cmd.Flags().Changed(sessionTables) {
				return usagef("--%s is %v, must be the lease of the service's sessions", sessionTables, lease)
			}
			total, err := sweep(cmd, store, keep, lease, cmp.Or(limit, math.MaxInt))
			if err != nil {
				return err
			}
			return a.write(s.json, total, func() error {
				parts := []string{many(total.Results, "result"), many(total.Records, "record")}
				for _, p := range patterns {
					if n, there := total.Entries[p.name]; there {
						parts = append(parts, many(n, p.entry))
					}
				}
				if n, there := total.Entries[sessionTables]; there {
					parts = append(parts, many(n, "session"))
				}
				last := len(parts) - 1
				_, err := fmt.Fprintf(a.out, "removed %s and %s\n", strings.Join(parts[:last], ", "), parts[last])
				return err
			})
		}),
	}
	f := cmd.Flags()
	s.flags(f, allStores, allPrefixes)
	for i, p := range patterns {
		keep[i] = p.keep
		f.Var((*duration.Value)(&keep[i]), p.name, "how long done or discarded "+p.entry+"s are kept, like 24h or 7d")
	}
	f.Var((*duration.Value)(&lease), sessionTables, "the lease of the service's client sessions, like 10m or 24h: sessions idle for that long are removed (default: none)")
	f.Lookup(sessionTables).DefValue = ""
	f.IntVar(&limit, "limit", 0, "the most rows to remove from each table (default: all)")
	return cmd
}

func sweep(cmd *cobra.Command, store storeurl.Store, keep []time.Duration, lease time.Duration, limit int) (total swept, err error) {
	if total.purged, err = purge(cmd.Context(), store, 1000, limit); err != nil {
		return total, err
	}
	for i, p := range patterns {
		asked := cmd.Flags().Changed(p.name)
		table, err := p.of(store, "", nil)
		if errors.Is(err, errUsage) && !asked { // not in a SQL database
			continue
		}
		n := 0
		if err == nil {
			n, err = table.backlog.Purge(cmd.Context(), keep[i], limit)
		}
		switch {
		case errors.Is(err, everonce.ErrSchema) && !asked: // there is no table
			continue
		case err != nil:
			return total, err
		}
		if total.Entries == nil {
			total.Entries = make(map[string]int)
		}
		total.Entries[p.name] = n
	}
	if lease > 0 {
		s, err := sessionsBeside(store, lease)
		n := 0
		if err == nil {
			n, err = s.Purge(cmd.Context(), limit)
		}
		if err != nil {
			return total, err
		}
		if total.Entries == nil {
			total.Entries = make(map[string]int)
		}
		total.Entries[sessionTables] = n
	}
	return total, nil
}
