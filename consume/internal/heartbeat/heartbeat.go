// Package heartbeat keeps a broker from redelivering a message while it waits and is handled.
package heartbeat

import (
	"context"
	"sync"
	"time"
)

// Start calls beat every interval in a new goroutine until beat returns false or stop is called. stop also ends the
// context of a running call, and returns once no call is running. It may be called again.
func Start(interval time.Duration, beat func(context.Context) bool) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var beating sync.WaitGroup
	beating.Go(func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				if ctx.Err() != nil || !beat(ctx) {
					return
				}
			}
		}
	})
	return func() {
		cancel()
		beating.Wait()
	}
}
