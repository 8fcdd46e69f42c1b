package enginetest

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/janitor"
	"github.com/everonce/everonce/store/memstore"
)

// The longest pause does not overflow into none. The jitter is random, so there are many janitors.
func TestJanitorsWithTheLongestPauseRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const janitors = 40
		ctx, cancel := context.WithCancel(context.Background())
		var rounds [janitors]atomic.Int64
		var ends [janitors]<-chan struct{}
		for i := range ends {
			ends[i] = startJanitor(ctx, t, memstore.New(nil), &janitor.Options{
				Every: math.MaxInt64,
				Report: func(driver.PurgeResult, error) {
					if rounds[i].Add(1) > 1 {
						cancel() // it would never rest
					}
				},
			})
		}
		time.Sleep(10 * 365 * 24 * time.Hour)
		cancel()
		for i, done := range ends {
			<-done
			checkEqual(t, "rounds", rounds[i].Load(), int64(1))
		}
	})
}
