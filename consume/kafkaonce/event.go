package kafkaonce

// Event is something that happened to a partition.
type Event struct {
	Kind      EventKind
	Topic     string // the topic, or a retry topic of it
	Partition int32
	// Offset is the committed offset, which is the first unfinished message. Lag is the number of offsets from there to
	// the end of the partition, as of the last fetch. Both are for Committed.
	Offset, Lag int64
	// Err is why a commit failed.
	Err error
}

// EventKind is the kind of an [Event].
type EventKind string

// The kinds.
const (
	Assigned     EventKind = "assigned"
	Revoked      EventKind = "revoked" // given back in a rebalance or at the end, after its last commit
	Lost         EventKind = "lost"    // taken away
	Committed    EventKind = "committed"
	CommitFailed EventKind = "commit_failed" // it is retried while this consumer has the partition
	Paused       EventKind = "paused"        // Options.Buffer is full
	Resumed      EventKind = "resumed"
)

func (c *Consumer) notify(e Event) {
	if c.opts.Observe == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			c.opts.Workers.Log.Error("kafkaonce: Observe panicked", "consumer", c.handler.Name(), "panic", p)
		}
	}()
	c.opts.Observe(e)
}
