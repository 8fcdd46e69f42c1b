package redisstore_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/redisstore"
)

// A record that cannot be read is listed by its readable parts. It does not prevent listing, counting or deleting the
// other records of its tenant; at the end of the deletion an error reports that a record is left.
func TestWhatCanNotBeReadHoldsUpNothing(t *testing.T) {
	t.Parallel()
	client := newClient(t, serverURL(t))
	s := newStore(t, client, nil)
	ctx := t.Context()
	scope := driver.ScopeOf("tenant", "charge")
	with := func(id string) (driver.Record, string) {
		rec := claimed(t, s, everonce.Key{Scope: scope, ID: id})
		for _, step := range []string{"one", "two"} {
			_, err := s.SaveStep(ctx, stepOf(&rec, step))
			noErr(t, err)
		}
		_, err := s.Release(ctx, releaseOf(&rec, driver.StateReleased))
		noErr(t, err)
		return rec, redisstore.KeyOf(s, rec.ID)
	}
	want := make(map[driver.RecordID]string)
	add := func(id, listed string, spoil func(key string)) {
		rec, key := with(id)
		spoil(key)
		want[rec.ID] = listed
	}
	const whole = "released one:done two:done"
	add("whole", whole, func(string) {})
	add("whole too", whole, func(string) {})
	add("a step of another form", "released two:done one:none", func(key string) { command(t, client, "HSET", key+":s", "one", "x") })
	add("steps of another type", "released", func(key string) {
		command(t, client, "DEL", key+":s")
		command(t, client, "SET", key+":s", "x")
	})
	lost := map[string]func(key string){
		"another type": func(key string) {
			command(t, client, "DEL", key)
			command(t, client, "RPUSH", key, "x")
		},
		"too short": func(key string) { command(t, client, "SET", key, "short") },
		"empty":     func(key string) { command(t, client, "SET", key, "") },
	}
	for id, spoil := range lost {
		add(id, "none", spoil)
	}

	page, err := s.List(ctx, driver.ListRequest{Scope: scope, Steps: true})
	noErr(t, err)
	for _, rec := range page.Records {
		got := rec.State.String()
		for _, step := range rec.Steps {
			got += fmt.Sprintf(" %s:%v", step.Name, step.State)
		}
		if got != want[rec.ID] {
			t.Errorf("%q is listed as %q, want %q", rec.Name, got, want[rec.ID])
		}
	}
	if len(page.Records) != len(want) {
		t.Errorf("%d of %d records are listed", len(page.Records), len(want))
	}
	for _, state := range []driver.State{driver.StateClaimed, driver.StateAbandoned, driver.StateCompleted} {
		page, err := s.List(ctx, driver.ListRequest{Scope: scope, States: []driver.State{state}})
		if err != nil || len(page.Records) != len(lost) {
			t.Errorf("in the state %v %d records are listed, %v; want the %d whose state is unknown", state, len(page.Records), err, len(lost))
		}
	}
	readable := len(want) - len(lost)
	if h, err := s.Health(ctx, driver.HealthRequest{}); err != nil || h.Released != int64(readable) || h.Unreadable != int64(len(lost)-1) { // the empty one is like one that has gone
		t.Errorf("%d records are counted, and %d as unreadable, %v; want %d and %d", h.Released, h.Unreadable, err, readable, len(lost)-1)
	}
	deleted := 0
	for {
		res, err := s.DeleteScope(ctx, driver.DeleteScopeRequest{Scope: scope, Limit: 3})
		if deleted += res.Records; res.More && err == nil {
			continue
		}
		if !errors.Is(err, driver.ErrCorruptRecord) || deleted != readable {
			t.Errorf("%d of %d records are deleted, and then %v; want ErrCorruptRecord", deleted, readable, err)
		}
		break
	}
}

// A record in a state that does not exist is never taken over, and is left unchanged.
func TestAStateThatIsNoneIsNotTakenOver(t *testing.T) {
	t.Parallel()
	client := newClient(t, serverURL(t))
	s := newStore(t, client, nil)
	key := everonce.Key{Scope: "tenant", ID: "1"}
	rec := claimed(t, s, key)
	name := redisstore.KeyOf(s, rec.ID)
	for _, state := range []string{"\x00", "\x05", "\xff"} {
		command(t, client, "SETRANGE", name, "33", state)
		before, err := command(t, client, "GET", name).ToString()
		noErr(t, err)
		for _, take := range []driver.TakeOver{driver.TakeNone, driver.TakeAbandoned, driver.TakeToSettle, driver.TakeForced} {
			req := claimOf(key)
			req.Take = take
			if _, err := s.Claim(t.Context(), req); !errors.Is(err, driver.ErrCorruptRecord) {
				t.Errorf("Claim, take %d, of state %q: %v, want ErrCorruptRecord", take, state, err)
			}
		}
		if after, err := command(t, client, "GET", name).ToString(); err != nil || after != before {
			t.Errorf("state %q was written over, %v", state, err)
		}
	}
}
