package main

import (
	"context"
	"testing"

	"github.com/everonce/everonce"
)

// pages is a store that lists one record a page.
type pages []everonce.Record

func (p pages) List(_ context.Context, r everonce.ListRequest) (everonce.ListResult, error) {
	for i := range p {
		if r.After == (everonce.RecordID{}) || i > 0 && p[i-1].ID == r.After {
			res := everonce.ListResult{Records: p[i : i+1]}
			if i+1 < len(p) {
				res.Next = p[i].ID
			}
			return res, nil
		}
	}
	return everonce.ListResult{}, nil
}

// A hash is looked for on every page of the records.
func TestAHashIsLookedForOnEveryPage(t *testing.T) {
	t.Parallel()
	var all pages
	for _, id := range []string{"a", "b", "c"} {
		all = append(all, everonce.Record{ID: everonce.Key{Scope: "shop", ID: id}.RecordID()})
	}
	for i := range all {
		where := address{hash: all[i].ID.Short()}
		if id, err := where.byHash(t.Context(), all); id != all[i].ID || err != nil {
			t.Errorf("on page %d: %v, %v", i+1, id, err)
		}
	}
}
