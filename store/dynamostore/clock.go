package dynamostore

import (
	"errors"
	"time"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go/middleware"
)

// ErrClock: the clock of this process and the server's differ too much for leases to be compared.
var ErrClock = errors.New("dynamostore: this process's clock differs from the server's")

// dateUnit is how far off a header Date may be with equal clocks: it has whole seconds.
const dateUnit = 2 * time.Second

// skewOf returns how far the server's clock is ahead, at least, as its answer to a call that was begun at sent shows.
// The server may have answered at any time since then: a busy machine reads an answer late.
func skewOf(answer middleware.Metadata, sent time.Time) (time.Duration, bool) {
	off, told := awsmiddleware.GetAttemptSkew(answer)
	if off < 0 {
		off = min(0, off+time.Since(sent))
	}
	return off, told
}
