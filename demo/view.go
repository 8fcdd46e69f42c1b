package demo

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/everonce/everonce/demo/internal/network"
)

// view writes a line for everything that happens, and draws a bar under the lines on a terminal. While a run is on,
// progress and killed may be called concurrently.
type view struct {
	out      io.Writer
	viaProxy bool
	terminal bool

	mu         sync.Mutex // of the lines
	mode       mode
	operations int
	quarters   int                      // of the run, already reported
	bar        *progressbar.ProgressBar // nil: none
}

func newView(out io.Writer, viaProxy bool) *view {
	f, ok := out.(*os.File)
	return &view{out: out, viaProxy: viaProxy, terminal: ok && term.IsTerminal(int(f.Fd()))}
}

// line writes a line, above the bar.
func (v *view) line(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.abort()
	fmt.Fprintf(v.out, format+"\n", args...)
	if v.bar != nil && !v.bar.IsFinished() {
		_ = v.bar.RenderBlank() //nolint:errcheck // a view that cannot be drawn stops nothing
	}
}

// abort takes the bar away, so that an error can be written.
func (v *view) abort() {
	if v.bar != nil {
		_ = v.bar.Clear() //nolint:errcheck // as above
	}
}

// begin is called when a run begins, with all programs up.
func (v *view) begin(m mode, operations int) {
	v.mode, v.operations, v.quarters, v.bar = m, operations, 0, nil
	v.line("%s everonce: %d payments, %d at a time", m, operations, width)
	if v.terminal {
		v.bar = progressbar.NewOptions(operations,
			progressbar.OptionSetWriter(v.out), progressbar.OptionSetWidth(24), progressbar.OptionShowCount(),
			progressbar.OptionSetPredictTime(false), progressbar.OptionSetElapsedTime(false),
			progressbar.OptionThrottle(50*time.Millisecond), progressbar.OptionUseANSICodes(true),
			progressbar.OptionClearOnFinish(), progressbar.OptionShowDescriptionAtLineEnd())
	}
}

// progress is called several times a second: final is how many payments have got their final answer.
func (v *view) progress(final, inFlight int, s network.Stats) {
	if v.bar != nil {
		v.bar.Describe(fmt.Sprintf("%s everonce · %d in flight · %d requests, %d answers lost", v.mode, inFlight, s.RequestsLost, s.AnswersLost))
		if !v.bar.IsFinished() {
			_ = v.bar.Set(final) //nolint:errcheck // as above
		}
		return
	}
	if quarters := 4 * final / v.operations; quarters > v.quarters {
		v.quarters = quarters
		v.line("  %d of %d payments final, %d in flight; %d deliveries, %d requests and %d answers lost",
			final, v.operations, inFlight, s.Deliveries, s.RequestsLost, s.AnswersLost)
	}
}

// killed is called after a program was killed in the middle of so many operations, and is up again.
func (v *view) killed(n, of int, who victim, inFlight int) {
	what := ""
	if v.viaProxy {
		what = string(who) + " "
	}
	v.line("  kill %d of %d: SIGKILL with %d operations in flight; %sstarted again", n, of, inFlight, what)
}

// settled is called when the unknown was settled.
func (v *view) settled(s settled) {
	if v.viaProxy {
		v.line("  unknown payments settled from the service's ledger: %d (%d had been charged, of which %d had no mail yet, and %d had not)",
			s.unknown(), s.done, s.finished, s.notDone)
		return
	}
	v.line("  unknown mails settled from the gateway's ledger: %d (%d had been sent, %d had not)", s.unknown(), s.done, s.notDone)
}

// end is called when a run has ended and its ledgers were audited.
func (v *view) end(o *outcome) {
	v.line("  audited: %d charges for %d payments, %d charged more than once, %d never (%.1f s)",
		o.count.Effects, o.count.Operations, o.count.Doubled, o.count.Lost, o.seconds)
}
