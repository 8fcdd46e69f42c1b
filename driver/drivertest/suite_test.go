package drivertest

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The names are what a failing run is read by, and what a planted bug refers to.
func TestNamesAreUniqueAndBugsNameAnExistingCheck(t *testing.T) {
	form := regexp.MustCompile(`^[A-Z][A-Za-z0-9]+/[A-Z][A-Za-z0-9]+$`)
	for _, suite := range []struct {
		checks []check
		bugs   []bug
	}{
		{storeChecks(), allBugs()},
		{allTxChecks[int](), txBugs[int]()},
	} {
		var names []string
		for _, c := range suite.checks {
			if slices.Contains(names, c.name) || !form.MatchString(c.name) {
				t.Errorf("check %q: a second one, or not Group/WhatMustHold", c.name)
			}
			names = append(names, c.name)
		}
		var bugs []string
		for _, b := range suite.bugs {
			if slices.Contains(bugs, b.name) || !slices.Contains(names, b.caught) {
				t.Errorf("bug %q: a second one, or caught by no check (%q)", b.name, b.caught)
			}
			bugs = append(bugs, b.name)
		}
	}
}

func TestARecorderKeepsFailuresToItself(t *testing.T) {
	got := watch(t, func(r *recorder) {
		r.Errorf("first %d", 1)
		r.Fatal("second")
		r.Errorf("never")
	})
	if !slices.Equal(got, []string{"first 1", "second"}) {
		t.Errorf("recorded %q", got)
	}
	if got := watch(t, func(*recorder) {}); got != nil {
		t.Errorf("recorded %q where nothing failed", got)
	}
}

// runPart runs the checks of a group, and plants the bugs that they must find.
func runPart(t *testing.T, group string, factory Factory, caps Capabilities) {
	t.Helper()
	caps = caps.withDefaults()
	checks := slices.DeleteFunc(storeChecks(), func(c check) bool { return !strings.HasPrefix(c.name, group) })
	bugs := slices.DeleteFunc(allBugs(), func(b bug) bool { return !strings.HasPrefix(b.caught, group) })
	if len(checks) == 0 || len(bugs) == 0 {
		t.Fatalf("%s: %d checks, %d planted bugs", group, len(checks), len(bugs))
	}
	runChecks(t, factory, caps, checks)
	runBugs(t, factory, caps, checks, bugs)
}
