// Package panics keeps a panic in an application's callback from ending its caller.
package panics

import (
	"context"
	"log/slog"
	"runtime/debug"
)

// Log is deferred around a callback. It recovers a panic and logs it. In the work of an operation such a panic
// would end the attempt, and in a goroutine of this module the process.
func Log(ctx context.Context, who string, about slog.Attr) {
	p := recover()
	if p == nil {
		return
	}
	defer func() { _ = recover() }() //nolint:errcheck // the logger may panic too
	slog.LogAttrs(ctx, slog.LevelError, "everonce: the "+who+" panicked", about, slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
}
