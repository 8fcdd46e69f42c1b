// Package placed lets the packages beside the core tell whether a context is of a work that everonce has called.
package placed

import "context"

// Key is the key of that place in a context.
type Key struct{}

// In reports whether ctx is of such a work.
func In(ctx context.Context) bool { return ctx.Value(Key{}) != nil }
