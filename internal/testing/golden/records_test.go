package golden

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// The records are what package transition makes of the calls, in the JSON in which third-party stores keep them.
func TestRecords(t *testing.T) {
	var written file
	for _, c := range cases(t, driver.FormatVersion) {
		clock := newClock()
		s := &script{T: t, h: inMemory(clock), c: c, lengths: map[time.Duration]bool{0: true}}
		c.write(s)
		rec := s.get().Record
		for _, at := range timesOf(&rec) {
			if !at.IsZero() {
				*at = time.UnixMicro(s.fixed(at.UnixMicro(), 0, 0)).UTC()
			}
		}
		rec.Token = driver.Token(s.fixed(int64(rec.Token), 0, 0))
		written = append(written, section{c.name, text(rec)})
	}
	written.compare(t, driver.FormatVersion, "records")
}

// The JSON of every version is read, and this version's JSON is written again unchanged.
func TestRecordsAsJSON(t *testing.T) {
	for version := 1; version <= driver.FormatVersion; version++ {
		for _, c := range cases(t, version) {
			stored, there := sections(t, version, "records").text(c.name)
			if !there {
				t.Fatalf("version %d has no record %q", version, c.name)
			}
			var rec driver.Record
			if err := json.Unmarshal([]byte(stored), &rec); err != nil {
				t.Fatal(err)
			}
			if version == driver.FormatVersion && text(rec) != stored {
				t.Errorf("%q is\n%s\nand was\n%s", c.name, text(rec), stored)
			}
			if rec.ID != c.key().RecordID() || rec.Format != version {
				t.Errorf("%q is the record %v, of format %d", c.name, rec.ID, rec.Format)
			}
		}
	}
}

// Every field of a record, of a step and of a result is set somewhere in the files, and each state and kind occurs: a
// field that is never set is not pinned.
func TestEveryFieldIsInTheRecords(t *testing.T) {
	set, kinds := map[string]bool{}, map[any]bool{}
	var look func(v reflect.Value)
	look = func(v reflect.Value) {
		if _, isTime := v.Interface().(time.Time); isTime || v.Kind() != reflect.Struct {
			return
		}
		for i := range v.NumField() {
			name, field := v.Type().String()+"."+v.Type().Field(i).Name, v.Field(i)
			set[name] = set[name] || !field.IsZero()
			switch field.Interface().(type) {
			case driver.State, driver.StepState, driver.ResultKind:
				kinds[field.Interface()] = true
			}
			look(field)
		}
	}
	for _, rec := range records(t, driver.FormatVersion) {
		look(reflect.ValueOf(rec))
		for _, s := range rec.Steps {
			look(reflect.ValueOf(s))
		}
	}
	for name, somewhere := range set {
		if !somewhere {
			t.Errorf("no record has a %s", name)
		}
	}
	for s := driver.StateClaimed; s <= driver.StateCompleted; s++ {
		if !kinds[s] {
			t.Errorf("no record is %v", s)
		}
	}
	for s := driver.StepOpen; s <= driver.StepNotDone; s++ {
		if !kinds[s] {
			t.Errorf("no step is %v", s)
		}
	}
	for k := driver.ResultValue; k <= driver.ResultElided; k++ {
		if !kinds[k] {
			t.Errorf("no result is %v", k)
		}
	}
}

// clock moves on whenever it is read, unless it is held.
type clock struct {
	at   time.Time
	held bool
}

func newClock() *clock {
	return &clock{at: time.Date(2026, time.November, 1, 2, 3, 4, 567_000, time.UTC)}
}

func (c *clock) now() time.Time {
	if !c.held {
		c.at = c.at.Add(7 * time.Millisecond)
	}
	return c.at
}

// inMemory is a store in memory. Its clock stands still in a transaction.
func inMemory(c *clock) Harness {
	s := memstore.New(&memstore.Options{Now: c.now})
	return Harness{Store: s, Transact: func(ctx context.Context, claim *driver.ClaimRequest, commit driver.CommitRequest) error {
		c.held = true
		defer func() { c.held = false }()
		if claim == nil {
			claim = commit.Record
		}
		res, err := s.Claim(ctx, *claim)
		if err != nil {
			return err
		}
		commit.Complete.Token = res.Record.Token
		_, err = s.Complete(ctx, *commit.Complete)
		return err
	}}
}

func timesOf(rec *driver.Record) []*time.Time {
	all := []*time.Time{
		&rec.LeaseUntil, &rec.CreatedAt, &rec.ClaimedAt, &rec.UpdatedAt, &rec.CompletedAt, &rec.ResultUntil, &rec.PurgeAt, &rec.Previous.ClaimedAt,
	}
	rec.Steps = slices.Clone(rec.Steps) // they are the store's
	for i := range rec.Steps {
		all = append(all, &rec.Steps[i].BeganAt, &rec.Steps[i].EndedAt)
	}
	return all
}
