package main

import (
	"strconv"
	"strings"
	"testing"

	"github.com/everonce/everonce/examples/internal/docs"
)

// The report on the page is one that the program prints, of a run with the defaults; the table beside it has each
// mistake.
func TestThePage(t *testing.T) {
	t.Parallel()
	quoted := func(page, info string) string {
		blocks := docs.Blocks(t, "how-to/"+page, info, "leader_changes")
		if len(blocks) != 1 {
			t.Fatalf("%s has %d reports, want one", page, len(blocks))
		}
		return blocks[0]
	}
	text := quoted("raft-state-machine.md", "json")
	rep, err := decoded(text)
	if err != nil {
		t.Fatal(err)
	}
	var printed strings.Builder
	if err := rep.print(&printed, true); err != nil || printed.String() != text {
		t.Errorf("it is not as it is printed: %s, %v", &printed, err)
	}
	if !rep.clean() || rep.Transfers != 2000 || rep.Kills != 4 || rep.LeaderChanges == 0 || rep.Retries == 0 {
		t.Errorf("%+v", rep)
	}
	left := map[mistake]bool{"": true, noSessions: true, localReads: true}
	for _, row := range docs.Table(t, "docs/how-to/raft-state-machine.md", "Try it: kill the leader") {
		_, name, _ := strings.Cut(row.Cells[0], "-broken=")
		name, _, _ = strings.Cut(name, "`")
		of := mistake(name)
		if !left[of] {
			t.Errorf("line %d: the mistake %q is unknown, or listed twice", row.Line, of)
		}
		delete(left, of)
		doubled, err := strconv.Atoi(row.Cells[1])
		if err != nil || (doubled > 0) != (of == noSessions) || row.Cells[2] != "0" || row.Cells[3] != strconv.FormatBool(of == "") {
			t.Errorf("line %d: %v", row.Line, row.Cells)
		}
	}
	if len(left) > 0 {
		t.Errorf("these are not in the table: %v", left)
	}
}
