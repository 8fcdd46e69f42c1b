package dynamostore

import (
	"errors"
	"time"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go/middleware"
)

// ErrClock: the clock of this process and the server's differ too much for leases to be compared.
var ErrClock = errors.New("dynamostore: this process's clock differs from the server's")

// dateUnit is how far off a header Date is with equal clocks: it has whole seconds, and the answer was on its way.
const dateUnit = 2 * time.Second

// skewOf is how far the server's clock is ahead, as far as its answer tells.
func skewOf(answer middleware.Metadata) (time.Duration, bool) {
	return awsmiddleware.GetAttemptSkew(answer)
}
