package kafkaonce

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// produced is a record on its way.
type produced struct {
	by    [2]*kgo.Client // which send it; the second may be nil
	topic string
	done  chan struct{}
	err   error // once done is closed
}

// deliverWithin is how long a record waits for a broker: what waited for longer would come beside the copies that were made since.
const deliverWithin = 10 * time.Second

// produce sends a record, and once more by the client alone, which may be nil, if it is refused in a batch: each record of a batch is
// refused for one of them. What was sent cannot be called back: its fate is that of the client, not of the caller's context.
func produce(client, alone *kgo.Client, r *kgo.Record) *produced {
	p := &produced{by: [2]*kgo.Client{client, alone}, topic: r.Topic, done: make(chan struct{})}
	ctx, cancel := context.WithTimeout(context.Background(), deliverWithin)
	r.Context = ctx // that of an earlier try has ended
	end := func(_ *kgo.Record, err error) {
		cancel()
		p.err = err
		close(p.done)
	}
	client.TryProduce(ctx, r, func(r *kgo.Record, err error) {
		if alone != nil && refused(err) {
			go alone.Produce(ctx, r, end) // waits for its turn
			return
		}
		end(r, err)
	})
	return p
}

// newAlone makes a client that sends one record at a time, whatever its size before it is compressed.
func newAlone(url string, opts []kgo.Opt) (*kgo.Client, error) {
	return newClient(url, opts, []kgo.Opt{
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.MaxBufferedRecords(1), kgo.ProducerLinger(0), kgo.ProducerBatchMaxBytes(largestCopy), kgo.BrokerMaxWriteBytes(largestCopy),
	})
}

// dense compresses copies well: a message that its producer has compressed may else be too large for the topic that it comes from.
func dense() kgo.Opt {
	return kgo.ProducerBatchCompression(kgo.ZstdCompression(), kgo.NoCompression())
}

// largestCopy is the size before compression of the largest record that is sent alone; the broker says what its topic takes.
const largestCopy = 100 << 20

// tooLarge reports whether a topic takes no record of that size.
func tooLarge(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge)
}

// refused reports whether a topic does not take a record, or another one of its batch, whenever it comes.
func refused(err error) bool {
	return tooLarge(err) || errors.Is(err, kerr.InvalidRecord) || errors.Is(err, kerr.InvalidTimestamp)
}

// wait returns what became of the record, or the cause of ctx, if it ends before. A client that knows a topic by its ID never produces to another
// one of that name: it is made to forget the ID, and the record may be sent again.
func (p *produced) wait(ctx context.Context) error {
	select {
	case <-p.done:
		if !errors.Is(p.err, kerr.UnknownTopicID) {
			return p.err
		}
		for _, client := range p.by {
			if client != nil {
				client.PurgeTopicsFromProducing(p.topic)
			}
		}
		return kerr.UnknownTopicOrPartition
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
