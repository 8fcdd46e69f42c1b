package replication_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/everonce/everonce/outbox"
	"github.com/everonce/everonce/outbox/replication"
)

func (d *database) slots(t testing.TB) int {
	t.Helper()
	return ask[int](t, d, "SELECT count(*) FROM pg_replication_slots")
}

// A temporary slot is removed with its connection. A permanent one remains, and can then be read beside an open
// transaction.
func testKindsOfSlots(t *testing.T, d *database) {
	d.listening(t, nil).ready().stop()
	until(t, "the temporary slot is gone", func() bool { return d.slots(t) == 0 })

	opts := &replication.Options{Slot: "everonce_kept"}
	d.listening(t, opts).ready().stop()
	if d.slots(t) != 1 {
		t.Fatal("the permanent slot is gone")
	}
	open := d.begin(t)
	e := d.listening(t, opts).ready()
	if err := open.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.wake("a commit")
	e.stop()
	d.dropSlot(t, opts.Slot)
}

func (d *database) dropSlot(t testing.TB, slot string) {
	t.Helper()
	until(t, "the slot is free", func() bool {
		return ask[bool](t, d, "SELECT NOT active FROM pg_replication_slots WHERE slot_name = $1", slot)
	})
	d.must(t, "SELECT pg_drop_replication_slot($1)", slot)
}

// Of two listeners of one slot, one waits for the other.
func testTakesTurns(t *testing.T, d *database) {
	opts := &replication.Options{Slot: "everonce_shared"}
	first := d.listening(t, opts).ready()
	second := d.listening(t, opts)
	until(t, "the second is refused", func() bool { return second.status().Err != nil })
	first.stop()
	second.wake("the end of the first")
	second.stop()
	d.dropSlot(t, opts.Slot)
}

// A slot that holds back too much is dropped, with an alarm, also while it is still being made; polling goes on.
func testHoldsBackTooMuch(t *testing.T, d *database) {
	to := new(sink)
	d.relaying(t, d.box, to, outbox.RelayOptions{NoListen: true, Poll: 20 * time.Millisecond})
	for i, slot := range []string{"", "everonce_greedy"} {
		e := d.listening(t, &replication.Options{Slot: slot, MaxRetained: 1 << 20, CheckEvery: 20 * time.Millisecond}).ready()
		open := d.begin(t)
		d.must(t, "INSERT INTO other SELECT * FROM generate_series(1, 50000)")
		if err := e.end(); !errors.Is(err, replication.ErrRetained) {
			t.Fatalf("it ended with %v", err)
		}
		if s := e.status(); s.Listening || !errors.Is(s.Err, replication.ErrRetained) || s.Retained <= 1<<20 {
			t.Errorf("it stands so: %+v", s)
		}
		until(t, "the slot is gone", func() bool { return d.slots(t) == 0 })

		making := d.listening(t, &replication.Options{Slot: slot, MaxRetained: 1 << 20, CheckEvery: 20 * time.Millisecond})
		until(t, "the slot is being made", func() bool { return d.slots(t) == 1 })
		d.must(t, "INSERT INTO other SELECT * FROM generate_series(1, 50000)")
		if err := making.end(); !errors.Is(err, replication.ErrRetained) {
			t.Fatalf("while it was made it ended with %v", err)
		}
		until(t, "the half made slot is gone", func() bool { return d.slots(t) == 0 })
		if err := open.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		d.publish(t)
		to.await(t, 2*(i+1))
	}
}

// A permanent slot is created again, whatever happened to it while no process listened.
func testSlotGivenUp(t *testing.T, d *database) {
	opts := &replication.Options{Slot: "everonce_idle", MaxRetained: 1 << 20}
	fill := func() {
		d.must(t, "INSERT INTO other SELECT * FROM generate_series(1, 50000)")
		d.must(t, "SELECT pg_switch_wal()")
	}
	for _, by := range []string{"the server", "the listener"} {
		d.listening(t, opts).ready().stop()
		if by == "the server" {
			d.setting(t, "max_slot_wal_keep_size = '1MB'")
			fill()
			fill()
			d.must(t, "CHECKPOINT")
			if s := ask[string](t, d, "SELECT wal_status FROM pg_replication_slots"); s != "lost" {
				t.Fatal("the slot is ", s)
			}
			d.setting(t, "max_slot_wal_keep_size = -1")
		} else {
			fill()
		}
		e := d.listening(t, opts).ready()
		d.publish(t)
		e.wake("a commit after the slot was given up by " + by)
		e.stop()
		d.dropSlot(t, opts.Slot)
	}
}

func (d *database) setting(t testing.TB, text string) {
	t.Helper()
	d.must(t, "ALTER SYSTEM SET "+text)
	d.must(t, "SELECT pg_reload_conf()")
	name, value, _ := strings.Cut(text, " = ")
	until(t, text, func() bool {
		return ask[string](t, d, "SELECT current_setting($1)", name) == strings.Trim(value, "'")
	})
}

// The publication is dropped, and events are inserted before it exists again, which a permanent slot has recorded.
func testPublicationMadeAnew(t *testing.T, d *database) {
	opts := &replication.Options{Slot: "everonce_renewed", Heartbeat: 20 * time.Millisecond}
	e := d.listening(t, opts).ready()
	d.must(t, "DROP PUBLICATION "+ask[string](t, d, "SELECT pubname FROM pg_publication_tables WHERE schemaname = current_schema()"))
	d.publish(t)
	e.wake("the publication was made anew")
	d.passed(t, opts.Slot) // it has got over that event
	e.stop()

	d.must(t, "CREATE PUBLICATION another FOR TABLE other")
	e = d.listening(t, &replication.Options{Publication: "another"})
	if err := e.end(); !errors.Is(err, replication.ErrRefused) || !strings.Contains(err.Error(), `ALTER PUBLICATION "another" ADD TABLE`) {
		t.Error(err)
	}
	d.dropSlot(t, opts.Slot)
}
