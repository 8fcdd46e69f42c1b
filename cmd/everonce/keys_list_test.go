package main

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/cmd/everonce/internal/inspect"
	"github.com/everonce/everonce/driver"
)

// pages is a store that looks at so many records a page.
type pages struct {
	all  []driver.Record
	size int
}

func (p *pages) List(_ context.Context, r driver.ListRequest) (res driver.ListResult, err error) {
	begin := 1 + slices.IndexFunc(p.all, func(rec driver.Record) bool { return rec.ID == r.After })
	end := min(begin+min(p.size, r.Limit), len(p.all))
	for _, rec := range p.all[begin:end] {
		if (r.Name == "" || rec.Name == r.Name) && (len(r.States) == 0 || inspect.IsUnreadable(&rec) || slices.Contains(r.States, rec.State)) {
			res.Records = append(res.Records, rec)
		}
	}
	if end < len(p.all) {
		res.Next = p.all[end-1].ID
	}
	return res, nil
}

// A damaged record, or one of a newer version, has no state that this version knows, whatever the record says. It can
// be listed separately: an alert counts such records.
func TestWhatCanNotBeReadIsListedAsSuch(t *testing.T) {
	t.Parallel()
	store := &pages{size: 1}
	for i, rec := range []driver.Record{
		{State: driver.StateReleased, Format: driver.FormatVersion, UpdatedAt: time.Unix(1, 0)},
		{State: driver.StateCompleted, Format: driver.FormatVersion + 1},
		{State: 0, Format: driver.FormatVersion},
		{State: driver.StateTombstone + 1, Format: driver.FormatVersion},
	} {
		rec.ID[0], rec.Name = byte(i+1), string(rune('a'+i))
		store.all = append(store.all, rec)
	}
	for name, c := range map[string]struct {
		states []string
		id     string
		want   string
	}{
		"all":                  {nil, "", "abcd"},
		"unreadable":           {[]string{inspect.Unreadable}, "", "bcd"},
		"unreadable, by ID":    {[]string{inspect.Unreadable}, "c", "c"},
		"unreadable, released": {[]string{inspect.Unreadable, "released"}, "", "abcd"},
	} {
		req, want, err := listRequest("", c.id, "", c.states, 10)
		if err != nil {
			t.Fatal(err)
		}
		l, err := collect(t.Context(), store, req, want)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, r := range l.Records {
			got += r.ID
			if wantState := map[bool]string{true: "released", false: inspect.Unreadable}[r.ID == "a"]; r.State != wantState {
				t.Errorf("%s: %s is %s, want %s", name, r.ID, r.State, wantState)
			}
		}
		if got != c.want || l.Next != "" {
			t.Errorf("%s: %q are listed, next %q, want %q and none", name, got, l.Next, c.want)
		}
	}
}

// A page of what is wanted goes on where it ended, and not where the store's page did.
func TestAPageOfWhatIsWanted(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 2, 10} {
		store := &pages{size: size}
		for i := range byte(5) {
			store.all = append(store.all, driver.Record{ID: everonce.RecordID{i + 1}, Name: string(rune('a' + i)), State: driver.StateReleased, Format: driver.FormatVersion})
		}
		got, req := "", driver.ListRequest{Limit: 2}
		for range store.all {
			l, err := collect(t.Context(), store, req, func(r *inspect.Record) bool { return slices.Contains([]string{"a", "c", "e"}, r.ID) })
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range l.Records {
				got += r.ID
			}
			if got += "|"; l.Next == "" {
				break
			}
			if req.After, err = driver.ParseRecordID(l.Next); err != nil {
				t.Fatal(err)
			}
		}
		if got != "ac|e|" {
			t.Errorf("%d a page: the pages are %q, want %q", size, got, "ac|e|")
		}
	}
}
