// Package placed lets other packages find out whether a context belongs to work that everonce has called.
package placed

import "context"

// Key is the key of that place in a context.
type Key struct{}

// In reports whether ctx belongs to such work.
func In(ctx context.Context) bool { return ctx.Value(Key{}) != nil }
