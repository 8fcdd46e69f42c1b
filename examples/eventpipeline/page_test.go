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
		blocks := docs.Blocks(t, "how-to/"+page, info, "")
		if len(blocks) != 1 {
			t.Fatalf("%s has %d blocks of %s, want one", page, len(blocks), info)
		}
		return blocks[0]
	}
	rep, err := decoded(quoted("rabbitmq-to-mongodb.md", "json"))
	if err != nil {
		t.Fatal(err)
	}
	var printed strings.Builder
	if err := rep.print(&printed, true); err != nil || printed.String() != quoted("rabbitmq-to-mongodb.md", "json") {
		t.Errorf("it is not as it is printed: %s, %v", &printed, err)
	}
	if !rep.clean() || rep.Distinct != 1000 || rep.Kills != 20 || rep.BrokerRestarts != 1 || rep.DuplicatesAbsorbed == 0 {
		t.Errorf("%+v", rep)
	}
	left := map[mistake]bool{none: true, ackFirst: true, wideCatch: true, checkThenInsert: true, noIndex: true}
	for _, row := range docs.Table(t, "docs/how-to/rabbitmq-to-mongodb.md", "What each mistake costs") {
		var n [4]int
		for i := range n {
			if n[i], err = strconv.Atoi(row.Cells[i+1]); err != nil {
				t.Fatalf("line %d: %v", row.Line, err)
			}
		}
		of := none
		if _, name, ok := strings.Cut(row.Cells[0], "-broken="); ok {
			name, _, _ = strings.Cut(name, "`")
			of = mistake(name)
		}
		if !left[of] {
			t.Errorf("line %d: the mistake %q is unknown, or listed twice", row.Line, of)
		}
		delete(left, of)
		row := Report{Distinct: rep.Distinct, Documents: n[0], DeadLettered: n[1], Lost: n[2], Doubled: n[3]}
		if row.Documents+row.DeadLettered+row.Lost != row.Distinct || row.clean() != (of == none) {
			t.Errorf("%q: %+v", of, row)
		}
		if of == none && n != [4]int{rep.Documents, rep.DeadLettered, rep.Lost, rep.Doubled} {
			t.Errorf("the report has other numbers than its row, %v", n)
		}
	}
	if len(left) > 0 {
		t.Errorf("these are not in the table: %v", left)
	}
}
