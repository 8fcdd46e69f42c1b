package view

import (
	"os"
	"strings"
	"testing"

	"github.com/everonce/everonce/cmd/everonce/internal/demo"
	"github.com/everonce/everonce/cmd/everonce/internal/demo/audit"
	"github.com/everonce/everonce/cmd/everonce/internal/demo/network"
	"github.com/everonce/everonce/cmd/everonce/internal/demo/settle"
)

// shown is the run that the README shows.
func shown() *demo.Result {
	return &demo.Result{
		Config: demo.Config{Operations: 300, Seed: 1574324174},
		Without: demo.Run{
			Mode: demo.Without, Count: audit.Count{Operations: 300, Effects: 499, Doubled: 124, Mails: 476, MailsDoubled: 112},
			Network: network.Stats{Deliveries: 501}, InFlight: []int{20, 10, 10, 10, 6},
		},
		With: demo.Run{
			Mode: demo.With, Count: audit.Count{Operations: 300, Effects: 300, Mails: 300},
			Network: network.Stats{Deliveries: 721, Replayed: 129}, InFlight: []int{10, 10, 10, 2, 2}, Settled: settle.Settled{Done: 18, NotDone: 12},
		},
		Seconds: 10.4,
	}
}

// The table is what the README shows, to the letter.
func TestTheTableIsThatOfTheReadme(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "$ make demo\n…\n")
	want, _, found := strings.Cut(rest, "```")
	var b strings.Builder
	if err := Table(&b, shown()); err != nil {
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
	r.Config.ViaProxy, r.With.Settled.Finished = true, 7
	var b strings.Builder
	if err := Table(&b, r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\n   payments unknown, settled                    -              30\n", "\n     charged, mailed by the operator            -               7\n", "in front of a service that knows nothing of keys"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, &b)
		}
	}
}

// The view of a terminal tells all that happens, above its bar; it can be ended before a run has begun.
func TestTheLiveView(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	v := NewLive(&b, false)
	v.Abort()
	r := shown()
	v.Begin(demo.With, 300)
	v.Progress(150, 32, r.With.Network)
	v.Killed(1, 5, "the service", 10)
	v.Settled(r.With.Settled)
	v.Progress(300, 0, r.With.Network)
	v.End(&r.With)
	v.Abort()
	for _, want := range []string{
		"with    everonce: kill 1 of 5, SIGKILL of the service with 10 operations in flight\n",
		"with    everonce: unknown mails settled from the gateway's ledger: 30 (18 had been sent, 12 had not)\n",
		"with    everonce: audited: 300 charges for 300 payments, 0 charged more than once, 0 never",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in %q", want, b.String())
		}
	}
}
