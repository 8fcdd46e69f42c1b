package sqldb

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/everonce/everonce/internal/retry"
)

// writeTries bounds how often one write is sent; each time the database has undone it.
const writeTries = 10

// Repeat runs a write until the database does not undo it for the sake of another: a deadlock, or a serialization
// failure where the database's own default is an isolation above read committed.
func Repeat(ctx context.Context, classify func(error) ErrorInfo, write func() error) error {
	for try := 1; ; try++ {
		err := write()
		if err == nil || try == writeTries || classify(err).Class != ClassRetry {
			return err
		}
		if retry.Pause(ctx, rand.N(time.Duration(try)*time.Millisecond)) != nil {
			return err
		}
	}
}
