package main

import "testing"

// A valid event that ended as a dead letter is not where it belongs: the run is not clean. One that is not valid is.
func TestAValidEventAmongTheDeadLettersIsNotClean(t *testing.T) {
	t.Parallel()
	all, err := ordersOf(100)
	if err != nil {
		t.Fatal(err)
	}
	count := func(stranded string) (rep Report) {
		docs, dead := map[string][]Event{}, map[string]bool{}
		for _, s := range all {
			if s.valid() && s.id != stranded {
				docs[s.id] = []Event{s.event()}
			} else {
				dead[s.id] = true
			}
		}
		rep.Distinct = len(all)
		if err := rep.count(all, docs, dead); err != nil {
			t.Fatal(err)
		}
		return rep
	}
	if rep := count(""); !rep.clean() || rep.DeadLettered != 5 {
		t.Errorf("all are where they belong: %+v", rep)
	}
	if rep := count("order-00000"); rep.clean() || rep.Stranded != 1 || rep.DeadLettered != 6 || rep.Lost != 0 {
		t.Errorf("a valid one is a dead letter: %+v", rep)
	}
}
