package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/everonce/everonce/examples/internal/program"
	"github.com/everonce/everonce/internal/testserver"
)

// ran runs the program, and returns its report and its exit code. It is built without the race detector, by which four
// services would be slow.
func ran(t *testing.T, args ...string) (rep Report, code int, said string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program.Build(t, "."), append([]string{"-json", "-v"}, args...)...)
	var out, told bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &told
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	rep, err := decoded(out.String())
	if err != nil {
		t.Fatalf("%v\n%s%s", err, &out, &told)
	}
	return rep, cmd.ProcessState.ExitCode(), told.String()
}

// decoded reads a report, which is one JSON object with just these members.
func decoded(text string) (rep Report, err error) {
	var members map[string]float64
	if err := json.Unmarshal([]byte(text), &members); err != nil {
		return rep, err
	}
	for _, name := range strings.Fields("orders shipped compensated kills doubled half_done seconds") {
		if _, ok := members[name]; !ok {
			return rep, errors.New("there is no " + name)
		}
		delete(members, name)
	}
	if len(members) > 0 {
		return rep, errors.New("there is more than it should be")
	}
	return rep, json.Unmarshal([]byte(text), &rep)
}

// Processes are killed, answers get lost or come too late: each order is shipped once, or taken back.
func TestOrderflow(t *testing.T) {
	for _, on := range []struct {
		name          string
		args          []string
		orders, kills int
	}{
		{"sqlite", nil, 60, 20},
		{"postgres", []string{"-postgres", testserver.URL(t, "postgres")}, 20, 5},
	} {
		t.Run(on.name, func(t *testing.T) {
			t.Parallel()
			if !testing.Short() {
				on.orders, on.kills = 1000, 400
			}
			rep, code, said := ran(t, append(on.args, "-n", strconv.Itoa(on.orders), "-kills", strconv.Itoa(on.kills))...)
			if code != 0 || rep.Orders != on.orders || rep.Kills != on.kills || rep.Shipped == 0 || rep.Compensated == 0 {
				t.Errorf("exit code %d: %+v\n%s", code, rep, said)
			}
		})
	}
}

// Without the participants' barrier effects are doubled, or left half done: else TestOrderflow would be blind.
func TestMistake(t *testing.T) {
	t.Parallel()
	rep, code, said := ran(t, "-n", "40", "-kills", "5", "-broken", "no-barrier")
	if code != 1 || rep.Doubled == 0 {
		t.Errorf("exit code %d: %+v\n%s", code, rep, said)
	}
}

// The audit tells each thing that may be wrong.
func TestCount(t *testing.T) {
	t.Parallel()
	all := ordersOf(1, 1)
	id, q, c := all[0].ID, all[0].Quantity, all[0].Cents
	shipped := map[string]int{"reserve": 1, "charge": 1, "ship": 1}
	sums := map[string]int64{"reserve": q, "charge": c, "ship": q}
	stock := int64(len(items)) * inStock
	for name, tc := range map[string]struct {
		status         string
		lines          map[string]int
		sums           map[string]int64
		free           int64
		doubled, half  int
		clean, refused bool
	}{
		"shipped":                     {"shipped", shipped, sums, stock - q, 0, 0, true, false},
		"shipped, and less is left":   {"shipped", shipped, sums, stock - q - 1, 0, 0, true, true},
		"shipped, and less is paid":   {"shipped", shipped, map[string]int64{"reserve": q, "charge": c - 1, "ship": q}, stock - q, 0, 0, true, true},
		"taken back":                  {"cancelled", map[string]int{"reserve": 1, "release": 1}, nil, stock, 0, 0, true, false},
		"refused at once":             {"cancelled", nil, nil, stock, 0, 0, true, false},
		"charged twice":               {"shipped", map[string]int{"reserve": 1, "charge": 2, "ship": 1}, sums, stock, 1, 0, false, false},
		"not charged":                 {"shipped", map[string]int{"reserve": 1, "ship": 1}, sums, stock, 0, 1, false, false},
		"shipped and refunded":        {"shipped", map[string]int{"reserve": 1, "charge": 1, "ship": 1, "refund": 1}, sums, stock, 0, 1, false, false},
		"not refunded":                {"cancelled", map[string]int{"charge": 1}, sums, stock, 0, 1, false, false},
		"refunded, and never charged": {"cancelled", map[string]int{"refund": 1}, sums, stock, 0, 1, false, false},
		"taken back twice":            {"cancelled", map[string]int{"charge": 1, "refund": 2}, sums, stock, 1, 0, false, false},
		"it has not ended":            {"accepted", nil, nil, stock, 0, 1, false, false},
		"only this step was done":     {"", map[string]int{"charge": 1}, nil, stock, 0, 1, false, false},
	} {
		b := &books{status: map[string]string{id: tc.status}, lines: map[string]map[string]int{id: tc.lines}, sums: tc.sums, free: tc.free}
		rep, err := b.count(all)
		if rep.Doubled != tc.doubled || rep.HalfDone != tc.half || rep.clean() != tc.clean || (err != nil) != tc.refused {
			t.Errorf("%s: %+v, %v", name, rep, err)
		}
	}
	if _, err := (&books{lines: map[string]map[string]int{"other": shipped}}).count(nil); err == nil {
		t.Error("an order that was never sent is not reported")
	}
}

// Bad arguments fail, and nothing is started.
func TestArguments(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-broken", "luck"}, {"-n", "0"}, {"-kills", "-1"}, {"more"}} {
		var said bytes.Buffer
		code, err := perform(t.Context(), args, &said, &said)
		if code != 2 || err == nil && said.Len() == 0 {
			t.Errorf("%v: exit code %d, %v", args, code, err)
		}
	}
}
