package everonce

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/everonce/everonce/internal/panics"
)

// LogObserver returns an observer that logs each operation, step and settlement in one line, with the key's hash, never
// the ID: not_recorded at level Error; at Warn what may need a person (unknown, lease_lost, store_failed, mismatch,
// invalid, an elided result, failed renewals, unused steps, another Alg); the rest at Debug. A nil logger is
// slog.Default().
func LogObserver(l *slog.Logger) Observer {
	if l == nil {
		l = slog.Default()
	}
	return logObserver{l}
}

type logObserver struct{ log *slog.Logger }

func (o logObserver) Start(ctx context.Context, _ Op) context.Context { return ctx }

func (o logObserver) End(ctx context.Context, ev Observation) {
	level := logLevel(ev)
	if !o.log.Enabled(ctx, level) {
		return
	}
	attrs := make([]slog.Attr, 0, 12)
	attrs = append(attrs,
		slog.String("key", ev.KeyHash), slog.String("scope", string(ev.Scope)),
		slog.String("outcome", ev.Outcome.String()), slog.Duration("took", ev.Duration))
	if ev.Step != "" {
		attrs = append(attrs, slog.String("step", ev.Step))
	}
	if ev.Attempt > 0 {
		attrs = append(attrs, slog.Int("attempt", ev.Attempt))
	}
	if ev.Waited > 0 {
		attrs = append(attrs, slog.Duration("waited", ev.Waited))
	}
	if ev.Retries > 0 {
		attrs = append(attrs, slog.Int("retries", ev.Retries))
	}
	if ev.RenewFailures > 0 {
		attrs = append(attrs, slog.Int("renew_failures", ev.RenewFailures))
	}
	if ev.Elided != "" {
		attrs = append(attrs, slog.String("elided", ev.Elided))
	}
	for _, flag := range [...]struct {
		name string
		set  bool
	}{{"provisional", ev.Provisional}, {"reconciled", ev.Reconciled}, {"lease_lost", ev.LeaseLost}, {"fingerprint_alg_changed", ev.AlgChanged}} {
		if flag.set {
			attrs = append(attrs, slog.Bool(flag.name, true))
		}
	}
	if len(ev.UnusedSteps) > 0 {
		attrs = append(attrs, slog.Any("unused_steps", ev.UnusedSteps))
	}
	if ev.Err != nil {
		attrs = append(attrs, slog.String("error", ev.Err.Error()))
	}
	o.log.LogAttrs(ctx, level, "everonce "+ev.Kind, attrs...)
}

func logLevel(ev Observation) slog.Level {
	switch ev.Outcome {
	case NotRecorded:
		return slog.LevelError
	case Unknown, LeaseLost, StoreFailed, Mismatch, Invalid:
		return slog.LevelWarn
	}
	if ev.Elided != "" || ev.AlgChanged || ev.LeaseLost || len(ev.UnusedSteps) > 0 || ev.RenewFailures > 0 {
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

const (
	warnAgain = time.Hour // the same operation with the same outcome is logged again after that
	warnKept  = 4096      // or after that many others
	warnBurst = 10        // lines a second
)

// warnings keeps track of the operations that were logged because they need a person: each once, and no more than
// warnBurst a second.
type warnings struct {
	mu      sync.Mutex
	logged  map[RecordID]Outcome
	since   time.Time // when logged was emptied
	second  time.Time // when lines began to count
	lines   int
	dropped int
}

// next reports whether a line is due, and how many were dropped before it. attempt is the one that ran in the call,
// or 0.
func (w *warnings) next(id RecordID, o Outcome, attempt int, now time.Time) (dropped int, due bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.logged) >= warnKept || now.Sub(w.since) >= warnAgain {
		w.logged, w.since = map[RecordID]Outcome{}, now
	}
	if attempt == 0 && w.logged[id] == o { // a repetition; an attempt in this call is new
		return 0, false
	}
	if now.Sub(w.second) >= time.Second {
		w.second, w.lines = now, 0
	}
	if w.lines >= warnBurst {
		w.dropped++
		return 0, false
	}
	w.lines++
	w.logged[id] = o
	dropped, w.dropped = w.dropped, 0
	return dropped, true
}

// warn logs the end of an operation if it needs a person. The check comes first and is cheap: every operation makes it.
func (op *operation) warn(ctx context.Context, o Outcome, attempt int, err error) {
	switch o {
	case Unknown, NotRecorded, LeaseLost, StoreFailed:
		op.logWarning(ctx, o, attempt, err)
	}
}

func (op *operation) logWarning(ctx context.Context, o Outcome, attempt int, err error) {
	key := op.id.Short()
	defer panics.Log(ctx, "logger", slog.String("key", key))
	log := op.set.Log
	if log == nil {
		log = slog.Default()
	}
	if op.call.given&optUnobserved != 0 || !log.Enabled(ctx, slog.LevelWarn) {
		return
	}
	dropped, due := op.warnings.next(op.id, o, attempt, time.Now())
	if !due {
		return
	}
	attrs := []slog.Attr{
		slog.String("key", key), slog.String("scope", string(op.key.Scope)), slog.String("outcome", o.String()),
		slog.Any("error", err), slog.String("run", "everonce keys explain --hash "+key),
	}
	if dropped > 0 {
		attrs = append(attrs, slog.Int("dropped", dropped))
	}
	log.LogAttrs(ctx, slog.LevelWarn, "everonce: an operation needs attention", attrs...)
}

// logs reports whether an observer is, or contains, a [LogObserver].
func logs(o Observer) bool {
	switch o := o.(type) {
	case logObserver:
		return true
	case *joinedObservers:
		return slices.ContainsFunc(o.each, logs)
	}
	return false
}
