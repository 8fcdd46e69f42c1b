package kafkaonce

import (
	"cmp"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
)

// Options configure a consumer. The zero value of each field is its default; negative values are errors.
type Options struct {
	// Workers configure the handling of the messages of one partition: with 6 partitions, 6 × Concurrency handlers run.
	// Default: as for [consume.Workers], with three exceptions. Order is the record key; a message without one has no
	// order. DrainTimeout, which bounds how long a rebalance waits for handlers, is at most half of RebalanceTimeout, and
	// SettleTimeout a quarter; more than all of it together is an error.
	Workers consume.Workers
	// Group is the name of the consumer group. Default: the consumer's name.
	Group string
	// Eager stops all partitions in a rebalance, as older clients do (sticky assignment). All members of a group must have
	// the same kind. Default: cooperative-sticky, which stops only those that move.
	Eager bool
	// Buffer is how many messages of a partition may be fetched, counted from the first unfinished one. The partition is
	// paused while there are more, or while they are more than 8 MiB. A fetch may bring as many again, but at most 1 MiB.
	// Default 500, or 4 × Workers.Concurrency × Workers.Batch if that is more.
	Buffer int
	// CommitEvery is the interval between commits. Default 1 s.
	CommitEvery time.Duration
	// SessionTimeout is how long the group waits for a heartbeat of this consumer before it gives its partitions to
	// others. Slow handlers do not delay heartbeats. Default 45 s.
	SessionTimeout time.Duration
	// RebalanceTimeout is how long the group waits for this consumer in a rebalance. Default 60 s.
	RebalanceTimeout time.Duration
	// Observe, if set, is called with what happens to partitions. It is called concurrently, and must not block.
	Observe func(Event)
	// Client are further options of the client, such as [kgo.SASL], [kgo.DialTLSConfig], [kgo.InstanceID] and
	// [kgo.WithLogger]. The options that this package sets come after them.
	Client []kgo.Opt
}

const (
	fetchWait   = 250 * time.Millisecond
	bufferBytes = 8 << 20
)

// withDefaults returns o with its defaults, or an error that wraps [everonce.ErrInvalidArgument].
func (o *Options) withDefaults(consumer string) (Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	w := &c.Workers
	if w.Concurrency < 0 || w.Batch < 0 || c.Buffer < 0 || c.CommitEvery < 0 || c.SessionTimeout < 0 || c.RebalanceTimeout < 0 {
		return c, fmt.Errorf("%w: kafkaonce: no field of Options may be negative", everonce.ErrInvalidArgument)
	}
	c.Group = cmp.Or(c.Group, consumer)
	c.CommitEvery = cmp.Or(c.CommitEvery, time.Second)
	c.SessionTimeout = cmp.Or(c.SessionTimeout, 45*time.Second)
	c.RebalanceTimeout = cmp.Or(c.RebalanceTimeout, time.Minute)
	w.DrainTimeout = cmp.Or(w.DrainTimeout, min(30*time.Second, c.RebalanceTimeout/2))
	w.SettleTimeout = cmp.Or(w.SettleTimeout, min(10*time.Second, c.RebalanceTimeout/4))
	*w = w.WithDefaults()
	c.Buffer = cmp.Or(c.Buffer, max(500, 4*w.Concurrency*w.Batch))
	if w.DrainTimeout+w.SettleTimeout > c.RebalanceTimeout {
		return c, fmt.Errorf("%w: kafkaonce: Workers.DrainTimeout, %v, and Workers.SettleTimeout, %v, are more than RebalanceTimeout, %v: the group would not wait for the handlers of a partition that moves",
			everonce.ErrInvalidArgument, w.DrainTimeout, w.SettleTimeout, c.RebalanceTimeout)
	}
	if w.Order == nil {
		w.Order = byRecordKey
	}
	return c, nil
}

// byRecordKey is the default of Workers.Order. Messages without a record key are not ordered: each has its own
// ordering key.
func byRecordKey(m *consume.Message) string {
	if m.Subject != "" {
		return m.Subject
	}
	return m.BrokerID
}

// balancer returns the balancer that this member uses as leader of the group.
func (o *Options) balancer() kgo.GroupBalancer {
	if o.Eager {
		return eachTopic{kgo.StickyBalancer()}
	}
	return eachTopic{kgo.CooperativeStickyBalancer()}
}

// group returns the client's options for a member of the group.
func (o *Options) group() []kgo.Opt {
	return []kgo.Opt{
		kgo.ConsumerGroup(o.Group), kgo.Balancers(o.balancer()), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.SessionTimeout(o.SessionTimeout), kgo.RebalanceTimeout(o.RebalanceTimeout), kgo.HeartbeatInterval(min(3*time.Second, o.SessionTimeout/4)),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(fetchWait), // a resumed partition waits that long if the broker has nothing for others
	}
}
