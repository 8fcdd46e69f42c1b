package demo

import (
	"os"
	"strings"
	"testing"

	"github.com/everonce/everonce/demo/internal/network"
	"github.com/everonce/everonce/demo/internal/shop"
)

// shown is the run that the README shows.
func shown() *result {
	return &result{
		config: Config{Operations: 300, Seed: 1574324174},
		without: outcome{
			count:   shop.Count{Operations: 300, Effects: 499, Doubled: 124, Mails: 476, MailsDoubled: 112},
			network: network.Stats{Deliveries: 501}, inFlight: []int{20, 10, 10, 10, 6},
		},
		with: outcome{
			count:   shop.Count{Operations: 300, Effects: 300, Mails: 300},
			network: network.Stats{Deliveries: 721, Replayed: 129}, inFlight: []int{10, 10, 10, 2, 2}, settled: settled{done: 18, notDone: 12},
		},
		seconds: 10.4,
	}
}

// The table is what the README shows, to the letter.
func TestTheTableIsThatOfTheReadme(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "$ make demo\n…\n")
	want, _, found := strings.Cut(rest, "```")
	var b strings.Builder
	if err := shown().table(&b); err != nil {
		t.Fatal(err)
	}
	if got := trimmed(b.String()); !found || got != trimmed(want) {
		t.Errorf("it is\n%s\nand the README shows\n%s", got, want)
	}
}

// trimmed is a text without what stands at the ends of its lines.
func trimmed(text string) string {
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

// Through the proxy the service's own crash may leave a payment without its mail: the table says how many the operator has sent.
func TestTheTableOfTheProxy(t *testing.T) {
	t.Parallel()
	r := shown()
	r.config.Via, r.with.settled.finished = ViaProxy, 7
	var b strings.Builder
	if err := r.table(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\n   payments unknown, settled                    -              30\n", "\n     charged, mailed by the operator            -               7\n", "in front of a service without keys"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, &b)
		}
	}
}

// A terminal gets a bar, and the same lines above it; it can be ended before a run has begun.
func TestTheViewOfATerminal(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	v := newView(&b, false)
	v.terminal = true
	v.abort()
	r := shown()
	v.begin(with, 300)
	v.progress(150, 32, r.with.network)
	v.killed(1, 5, theService, 10)
	v.settled(r.with.settled)
	v.progress(300, 0, r.with.network)
	v.end(&r.with)
	v.abort()
	for _, want := range []string{
		"/300) with everonce · 32 in flight",
		"  kill 1 of 5: SIGKILL with 10 operations in flight; started again\n",
		"  unknown mails settled from the gateway's ledger: 30 (18 had been sent, 12 had not)\n",
		"  audited: 300 charges for 300 payments, 0 charged more than once, 0 never",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in %q", want, b.String())
		}
	}
}
