// Package view shows how a demo goes: as a live view on a terminal, as plain lines elsewhere, and as a
// table at the end.
package view

import (
	"fmt"
	"io"

	"github.com/everonce/everonce/cmd/everonce/internal/demo"
	"github.com/everonce/everonce/cmd/everonce/internal/demo/network"
	"github.com/everonce/everonce/cmd/everonce/internal/demo/settle"
)

// View is a watcher that can be ended.
type View interface {
	demo.Watcher
	// Abort ends the view of a run that did not come to its end, so that an error can be written.
	Abort()
}

// Lines writes a line for everything that happens.
type Lines struct {
	out        io.Writer
	via        bool
	operations int
	told       int // quarters of the run that were told
}

// NewLines returns a view that writes plain lines. via says that the records are a proxy's.
func NewLines(out io.Writer, via bool) *Lines { return &Lines{out: out, via: via} }

// Begin implements [demo.Watcher].
func (v *Lines) Begin(mode demo.Mode, operations int) {
	v.operations, v.told = operations, 0
	fmt.Fprintf(v.out, "%s everonce: %d payments, %d at a time\n", mode, operations, demo.Width)
}

// Progress implements [demo.Watcher].
func (v *Lines) Progress(final, inFlight int, stats network.Stats) {
	if quarter := 4 * final / v.operations; quarter > v.told {
		v.told = quarter
		fmt.Fprintf(v.out, "  %d of %d payments final, %d in flight; %s\n", final, v.operations, inFlight, losses(stats))
	}
}

func losses(s network.Stats) string {
	return fmt.Sprintf("%d deliveries, %d requests and %d answers lost", s.Deliveries, s.RequestsLost, s.AnswersLost)
}

// Killed implements [demo.Watcher].
func (v *Lines) Killed(n, of int, who demo.Victim, inFlight int) {
	what := ""
	if v.via {
		what = string(who) + " "
	}
	fmt.Fprintf(v.out, "  kill %d of %d: SIGKILL with %d operations in flight; %sstarted again\n", n, of, inFlight, what)
}

// Settled implements [demo.Watcher].
func (v *Lines) Settled(s settle.Settled) { fmt.Fprintf(v.out, "  %s\n", settled(s, v.via)) }

func settled(s settle.Settled, via bool) string {
	if via {
		return fmt.Sprintf("unknown payments settled from the service's ledger: %d (%d had been charged, of which %d had no mail yet, and %d had not)",
			s.Unknown(), s.Done, s.Finished, s.NotDone)
	}
	return fmt.Sprintf("unknown mails settled from the gateway's ledger: %d (%d had been sent, %d had not)", s.Unknown(), s.Done, s.NotDone)
}

// End implements [demo.Watcher].
func (v *Lines) End(r *demo.Run) { fmt.Fprintf(v.out, "  %s\n", audited(r)) }

func audited(r *demo.Run) string {
	return fmt.Sprintf("audited: %d charges for %d payments, %d charged more than once, %d never (%.1f s)",
		r.Count.Effects, r.Count.Operations, r.Count.Doubled, r.Count.Lost, r.Seconds)
}

// Abort implements [View].
func (v *Lines) Abort() {}
