package natsonce

import (
	"cmp"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
)

// Options configure a consumer. The zero value of each field is its default; negative values are errors.
type Options struct {
	// Workers configure the handling of messages. At most 3 × Workers.Concurrency × Workers.Batch messages are unanswered
	// at a time, and with Workers.Order a buffer for each lane. Default: as for [consume.Workers].
	Workers consume.Workers
	// Connect are further options of the connection: credentials, TLS, reconnects. By default, a lost connection is made
	// again for as long as it takes, also if the server refuses the credentials meanwhile.
	Connect []nats.Option
	// Name is the name of the connection, which operators see. Default: the names of the consumer and the stream.
	Name string
	// Backoff bounds the pause after messages could not be fetched. Default 500 ms and 30 s.
	Backoff consume.Backoff
}

// withDefaults returns o with its defaults, or an error that wraps [everonce.ErrInvalidArgument].
func (o *Options) withDefaults(consumer, stream string) (Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	if c.Workers.Concurrency < 0 || c.Workers.Batch < 0 || c.Backoff.Min < 0 || c.Backoff.Max < 0 {
		return c, fmt.Errorf("%w: natsonce: no field of Options may be negative", everonce.ErrInvalidArgument)
	}
	c.Workers = c.Workers.WithDefaults()
	c.Name = cmp.Or(c.Name, consumer+" on "+stream)
	c.Backoff = c.Backoff.WithDefaults(500*time.Millisecond, 30*time.Second)
	return c, nil
}
