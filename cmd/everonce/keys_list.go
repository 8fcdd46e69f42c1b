package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/cmd/everonce/internal/inspect"
	"github.com/everonce/everonce/driver"
)

const (
	defaultPage = 100
	maxPage     = 10_000
)

// list is the JSON output of a listing.
type list struct {
	Records []inspect.Record `json:"records"`
	// Next is the --after of the next page; empty after the last.
	Next string    `json:"next,omitempty"`
	Now  time.Time `json:"now"`
}

// keysList lists operations.
func (a *app) keysList(s *storeFlags) *cobra.Command {
	var scope, id, after string
	var states []string
	var limit int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List operations, by scope and state",
		Long: `list writes the records of a store, a page at a time, in the order of their IDs; records
of one tenant are together.

States: claimed (an attempt is running), released (it may be sent again: nothing happened,
or the policy is reexecute; explain says which), abandoned (the outcome is unknown: the
work ended so, or its lease has run out), completed, tombstone (completed, and the
result's retention is over), unreadable (damaged, or written by a newer version: it
protects its key, and cannot be shown or settled).`,
		Example: "  everonce keys list --store sqlite:payments.db --state abandoned\n" +
			"  everonce keys list --store sqlite:payments.db --scope shop --limit 20 --json",
		Args: noArgs,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			req, want, err := listRequest(scope, id, after, states, limit)
			if err != nil {
				return err
			}
			store, err := s.open(cmd)
			if err != nil {
				return err
			}
			defer store.Close() //nolint:errcheck // it was only read
			page, err := collect(cmd.Context(), store, req, want)
			if err != nil {
				return err
			}
			return a.writeList(s.json, &page)
		}),
	}
	f := cmd.Flags()
	f.StringVar(&scope, "scope", "", "only this scope and the scopes inside it")
	f.StringVar(&id, "id", "", "only operations whose key has this ID, in whatever scope")
	f.StringSliceVar(&states, "state", nil, "only these states; separate them with commas, or repeat the flag")
	complete(cmd, "state", "claimed", "released", "abandoned", "completed", "tombstone", inspect.Unreadable)
	f.IntVar(&limit, "limit", defaultPage, "the most records to list")
	f.StringVar(&after, "after", "", "start after this record: the previous page's next")
	return cmd
}

// listRequest returns the request that the flags describe, and a filter for its answer.
func listRequest(scope, id, after string, states []string, limit int) (req driver.ListRequest, want func(*inspect.Record) bool, err error) {
	req = driver.ListRequest{Scope: everonce.Scope(scope), Name: id, Limit: limit}
	if limit < 1 || limit > maxPage {
		return req, nil, usagef("--limit is %d, must be from 1 to %d", limit, maxPage)
	}
	unreadable := false
	for _, name := range states {
		state, ok := parseState(name)
		switch {
		case ok:
			req.States = append(req.States, state)
		case name == inspect.Unreadable:
			unreadable = true
			req.States = append(req.States, 0)
		default:
			return req, nil, usagef("there is no state %q; the states are claimed, released, abandoned (unknown), completed, tombstone and unreadable", name)
		}
	}
	if after != "" {
		if req.After, err = driver.ParseRecordID(after); err != nil {
			return req, nil, usagef("--after: %w", err)
		}
	}
	if unreadable {
		return req, func(r *inspect.Record) bool { return slices.Contains(states, r.State) }, nil
	}
	return req, func(*inspect.Record) bool { return true }, nil
}

// collect reads pages until it has as many wanted records as the request's limit.
func collect(ctx context.Context, store driver.Lister, req driver.ListRequest, want func(*inspect.Record) bool) (list, error) {
	l := list{Records: []inspect.Record{}}
	limit := req.Limit
	for {
		page, err := store.List(ctx, req)
		if err != nil {
			return l, err
		}
		l.Now, req.After = page.Now, page.Next
		for i := range page.Records {
			r := inspect.Of(&page.Records[i], page.Now, false)
			if !want(&r) {
				continue
			}
			if res := r.Result; res != nil {
				res.Bytes = nil // its data were not read
			}
			if l.Records = append(l.Records, r); len(l.Records) == limit {
				if i+1 < len(page.Records) || page.Next != (everonce.RecordID{}) {
					l.Next = r.Record
				}
				return l, nil
			}
		}
		if page.Next == (everonce.RecordID{}) {
			return l, nil
		}
		req.Limit = maxPage
	}
}

func parseState(name string) (driver.State, bool) {
	for s := driver.StateClaimed; s <= driver.StateTombstone; s++ {
		if s.String() == name {
			return s, true
		}
	}
	return 0, false
}

func (a *app) writeList(asJSON bool, l *list) error {
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
