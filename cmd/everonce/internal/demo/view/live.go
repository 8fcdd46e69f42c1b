package view

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/everonce/everonce/cmd/everonce/internal/demo"
	"github.com/everonce/everonce/cmd/everonce/internal/demo/network"
	"github.com/everonce/everonce/cmd/everonce/internal/demo/settle"
)

// Live draws a bar for each run, and writes a line above it for everything that happens.
type Live struct {
	out  io.Writer
	via  bool
	mode demo.Mode
	bar  *progressbar.ProgressBar
}

// NewLive returns a view for a terminal. via says that the records are a proxy's.
func NewLive(out io.Writer, via bool) *Live { return &Live{out: out, via: via} }

// Begin implements [demo.Watcher].
func (v *Live) Begin(mode demo.Mode, operations int) {
	v.mode = mode
	v.bar = progressbar.NewOptions(operations,
		progressbar.OptionSetWriter(v.out), progressbar.OptionSetWidth(24), progressbar.OptionShowCount(),
		progressbar.OptionSetPredictTime(false), progressbar.OptionSetElapsedTime(false),
		progressbar.OptionThrottle(50*time.Millisecond), progressbar.OptionUseANSICodes(true),
		progressbar.OptionClearOnFinish(), progressbar.OptionShowDescriptionAtLineEnd())
	_ = v.bar.RenderBlank() //nolint:errcheck // a view that cannot be drawn stops nothing
}

// Progress implements [demo.Watcher].
func (v *Live) Progress(final, inFlight int, s network.Stats) {
	v.bar.Describe(fmt.Sprintf("%s everonce · %d in flight · %d requests, %d answers lost", v.mode, inFlight, s.RequestsLost, s.AnswersLost))
	if !v.bar.IsFinished() {
		_ = v.bar.Set(final) //nolint:errcheck // as above
	}
}

// Killed implements [demo.Watcher].
func (v *Live) Killed(n, of int, who demo.Victim, inFlight int) {
	v.above("%-7s everonce: kill %d of %d, SIGKILL of %s with %d operations in flight", v.mode, n, of, who, inFlight)
}

// Settled implements [demo.Watcher].
func (v *Live) Settled(s settle.Settled) { v.above("%-7s everonce: %s", v.mode, settled(s, v.via)) }

// End implements [demo.Watcher].
func (v *Live) End(r *demo.Run) { v.above("%-7s everonce: %s", v.mode, audited(r)) }

// above writes a line where the bar is, and the bar under it.
func (v *Live) above(format string, args ...any) {
	_ = v.bar.Clear() //nolint:errcheck // as above
	fmt.Fprintf(v.out, format+"\n", args...)
	if !v.bar.IsFinished() {
		_ = v.bar.RenderBlank() //nolint:errcheck // as above
	}
}

// Abort implements [View].
func (v *Live) Abort() {
	if v.bar != nil {
		_ = v.bar.Clear() //nolint:errcheck // as above
	}
}
