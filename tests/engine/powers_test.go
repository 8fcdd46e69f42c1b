package engine

import (
	"context"
	"fmt"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// around is a wrapper that can list and delete, where what it is put around can.
type around struct{ everonce.Store }

func (a around) Unwrap() everonce.Store { return a.Store }

func (a around) List(ctx context.Context, req driver.ListRequest) (driver.ListResult, error) {
	lister, _ := driver.PowerOf[driver.Lister](a.Store)
	return lister.List(ctx, req)
}

func (a around) DeleteScope(ctx context.Context, req driver.DeleteScopeRequest) (driver.DeleteScopeResult, error) {
	deleter, _ := driver.PowerOf[driver.ScopeDeleter](a.Store)
	return deleter.DeleteScope(ctx, req)
}

// lists is a store that can list, and nothing else.
type lists struct {
	everonce.Store
	driver.Lister
}

func TestPowersOfAWrapper(t *testing.T) {
	all := memstore.New(nil)
	for _, tc := range []struct {
		name                   string
		store                  everonce.Store
		list, deletes, recalls bool
	}{
		{"a store", all, true, true, true},
		{"one that has but one", lists{all, all}, true, false, false},
		{"one without", struct{ everonce.Store }{all}, false, false, false},
		{"around all", around{all}, true, true, false},
		{"around one", around{lists{all, all}}, true, false, false},
		{"around none", around{struct{ everonce.Store }{all}}, false, false, false},
		{"around a wrapper", around{around{lists{all, all}}}, true, false, false},
		{"around nothing", around{}, false, false, false},
	} {
		lister, list := driver.PowerOf[driver.Lister](tc.store)
		_, deletes := driver.PowerOf[driver.ScopeDeleter](tc.store)
		_, recalls := driver.PowerOf[driver.Recaller](tc.store)
		if list != tc.list || deletes != tc.deletes || recalls != tc.recalls {
			t.Errorf("%s: lists %v, deletes %v, recalls %v", tc.name, list, deletes, recalls)
		}
		if list == (lister == nil) {
			t.Errorf("%s: it lists: %v, and the power is %v", tc.name, list, lister)
		}
		if !list {
			continue
		}
		if _, err := lister.List(t.Context(), driver.ListRequest{}); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

func ExamplePowerOf() {
	store := memstore.New(nil)
	if deleter, ok := driver.PowerOf[driver.ScopeDeleter](store); ok {
		res, err := deleter.DeleteScope(context.Background(), driver.DeleteScopeRequest{Scope: everonce.ScopeOf("shop-7"), Limit: 100})
		fmt.Println(res.Records, res.More, err)
	}
	// Output: 0 false <nil>
}
