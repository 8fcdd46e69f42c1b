package everonce

import (
	"context"
	"log/slog"
)

// LogObserver returns an observer that writes one line per operation, step and settlement, with the key's hash and
// the scope, never the ID. The outcome not_recorded is logged at level Error. What a person may have to look at is
// logged at Warn: the outcomes unknown, lease_lost, store_failed, mismatch and invalid; and, whatever the outcome, a
// result that was elided, a lease that was lost, renewals that failed, recorded steps that were not asked for again,
// and another Alg. Everything else is logged at Debug. A nil logger is slog.Default().
func LogObserver(l *slog.Logger) Observer {
	if l == nil {
		l = slog.Default()
	}
	return logObserver{l}
}

type logObserver struct{ log *slog.Logger }

func (o logObserver) Start(ctx context.Context, _ Op) context.Context { return ctx }

func (o logObserver) End(ctx context.Context, ev Event) {
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

func logLevel(ev Event) slog.Level {
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
