package main

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// asked notes what a listing was asked for, and has one record of that.
type asked []driver.ListRequest

func (a *asked) List(_ context.Context, r driver.ListRequest) (driver.ListResult, error) {
	*a = append(*a, r)
	id := everonce.RecordID{7}
	copy(id[8:], r.KeyHash[:])
	return driver.ListResult{Records: []driver.Record{{ID: id, Name: r.Name}}, Next: id}, nil
}

// A store finds a key by its hash, or by its ID, in one call: page by page, a store without an index of them looks at
// all of its records again for each.
func TestAKeyIsFoundByOneCall(t *testing.T) {
	t.Parallel()
	hash := driver.KeyHash{1, 2, 3}
	for _, c := range []struct {
		where address
		want  driver.ListRequest
	}{
		{address{}, driver.ListRequest{KeyHash: hash, Limit: 1}},
		{address{scope: "shop"}, driver.ListRequest{KeyHash: hash, Scope: "shop", Limit: 1}},
		{address{id: "pay-7"}, driver.ListRequest{Name: "pay-7", Limit: 2}},
	} {
		var store asked
		find := func() (everonce.RecordID, error) { return c.where.byHash(t.Context(), &store, hash) }
		if c.where.id != "" {
			find = func() (everonce.RecordID, error) { return c.where.byID(t.Context(), &store) }
		}
		if id, err := find(); id[0] != 7 || id.Hash() != c.want.KeyHash || err != nil {
			t.Errorf("%+v: %v, %v", c.where, id, err)
		}
		if len(store) != 1 || !reflect.DeepEqual(store[0], c.want) {
			t.Errorf("%+v: the store was asked for %+v, want %+v", c.where, store, c.want)
		}
	}
	var store asked
	req, want, err := listRequest("shop", "pay-7", "", nil, 20)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := collect(t.Context(), &store, req, want); err != nil || store[0].Name != "pay-7" {
		t.Errorf("list --id: the store was asked for %+v, %v", store[0], err)
	}
}

// anything is a store that has found another record than the one that was asked for.
type anything struct{}

func (anything) List(context.Context, driver.ListRequest) (driver.ListResult, error) {
	return driver.ListResult{Records: []driver.Record{{ID: everonce.RecordID{7}, Name: "another"}}}, nil
}

// Another record is not settled for it.
func TestNoOtherKeyIsMeant(t *testing.T) {
	t.Parallel()
	if id, err := (&address{}).byHash(t.Context(), anything{}, driver.KeyHash{1, 2, 3}); !errors.Is(err, everonce.ErrNotFound) {
		t.Errorf("by its hash: %v, %v", id, err)
	}
	if id, err := (&address{id: "pay-7"}).byID(t.Context(), anything{}); !errors.Is(err, everonce.ErrNotFound) {
		t.Errorf("by its ID: %v, %v", id, err)
	}
}
