package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/cmd/everonce/internal/inspect"
)

const (
	defaultPage = 100
	maxPage     = 10_000
)

// list is what a listing writes as JSON.
type list struct {
	Records []inspect.Record `json:"records"`
	// Next is the --after of the next page; empty after the last.
	Next string    `json:"next,omitempty"`
	Now  time.Time `json:"now"`
}

// keysList lists operations.
func (a *app) keysList(s *storeFlags) *cobra.Command {
	var scope, after string
	var states []string
	var limit int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List operations, by scope and state",
		Long: `list writes the records of a store, a page at a time, in the order of their IDs; records
of one tenant are together.

States: claimed (an attempt is running), released (nothing took hold; it may be sent
again), abandoned (nobody knows what happened, or its lease has run out), completed,
tombstone (completed, and the result's retention is over).`,
		Example: "  everonce keys list --store sqlite:payments.db --state abandoned\n" +
			"  everonce keys list --store sqlite:payments.db --scope shop --limit 20 --json",
		Args: noArgs,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			req, err := listRequest(scope, after, states, limit)
			if err != nil {
				return err
			}
			store, err := s.open(cmd)
			if err != nil {
				return err
			}
			defer store.Close() //nolint:errcheck // it was only read
			page, err := store.List(cmd.Context(), req)
			if err != nil {
				return err
			}
			return a.writeList(s.json, page)
		}),
	}
	f := cmd.Flags()
	f.StringVar(&scope, "scope", "", "only this scope and the scopes inside it")
	f.StringSliceVar(&states, "state", nil, "only these states; separate them with commas, or repeat the flag")
	complete(cmd, "state", "claimed", "released", "abandoned", "completed", "tombstone")
	f.IntVar(&limit, "limit", defaultPage, "how many at most")
	f.StringVar(&after, "after", "", "start after this record: what the previous page gave as next")
	return cmd
}

func listRequest(scope, after string, states []string, limit int) (everonce.ListRequest, error) {
	req := everonce.ListRequest{Scope: everonce.Scope(scope), Limit: limit}
	if limit < 1 || limit > maxPage {
		return req, usagef("--limit is %d, must be from 1 to %d", limit, maxPage)
	}
	for _, name := range states {
		state, ok := parseState(name)
		if !ok {
			return req, usagef("there is no state %q; the states are claimed, released, abandoned (unknown), completed and tombstone", name)
		}
		req.States = append(req.States, state)
	}
	if after != "" {
		var err error
		if req.After, err = everonce.ParseRecordID(after); err != nil {
			return req, usagef("--after: %w", err)
		}
	}
	return req, nil
}

func parseState(name string) (everonce.State, bool) {
	for s := everonce.StateClaimed; s <= everonce.StateTombstone; s++ {
		if s.String() == name {
			return s, true
		}
	}
	return 0, false
}

func (a *app) writeList(asJSON bool, page everonce.ListResult) error {
	l := list{Records: make([]inspect.Record, len(page.Records)), Now: page.Now}
	for i := range page.Records {
		l.Records[i] = inspect.Of(&page.Records[i], page.Now, false)
		if res := l.Records[i].Result; res != nil {
			res.Bytes = nil // its data were not read
		}
	}
	if page.Next != (everonce.RecordID{}) {
		l.Next = page.Next.String()
	}
	return a.write(asJSON, l, func() error {
		if err := inspect.WriteList(a.out, l.Records); err != nil {
			return err
		}
		if l.Next != "" {
			fmt.Fprintf(a.err, "There may be more: --after %s\n", l.Next)
		}
		return nil
	})
}
