package kafkaonce

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// produced is a record on its way.
type produced struct {
	done chan struct{}
	err  error // once done is closed
}

// deliverTimeout is how long a record waits for a broker: what waited for longer would come beside the copies that were made since.
const deliverTimeout = 10 * time.Second

// produce sends a record, and once more by the client alone, which may be nil, if it is refused in a batch: each record of a batch is
// refused for one of them. What was sent cannot be called back: its fate is that of the client, not of the caller's context.
func (f *forgotten) produce(client, alone *kgo.Client, r *kgo.Record) *produced {
	p := &produced{done: make(chan struct{})}
	ctx, cancel := context.WithTimeout(context.Background(), deliverTimeout)
	r.Context = ctx // that of an earlier try has ended
	end := func(by *kgo.Client) func(*kgo.Record, error) {
		times := f.times(idOf{by, r.Topic})
		return func(r *kgo.Record, err error) {
			cancel()
			p.err = err
			if !errors.Is(err, kerr.UnknownTopicID) {
				close(p.done)
				return
			}
			p.err = kerr.UnknownTopicOrPartition // so that it is sent again
			go func() {
				defer close(p.done)
				f.forget(idOf{by, r.Topic}, times)
			}()
		}
	}
	sent := end(client)
	client.TryProduce(ctx, r, func(r *kgo.Record, err error) {
		if alone != nil && refused(err) {
			go alone.Produce(ctx, r, end(alone)) // waits for its turn
			return
		}
		sent(r, err)
	})
	return p
}

// idOf is the ID by which a client knows a topic.
type idOf struct {
	client *kgo.Client
	topic  string
}

// forgotten has clients forget the IDs of topics that were deleted: a client that knows a topic by its ID never produces to another one of that
// name. The client then counts its records from zero again, and a broker takes a record whose number it has seen for a repetition. So each ID
// is forgotten once, whoever learns of it late.
type forgotten struct {
	one sync.Mutex
	ids sync.Map // of how often, by idOf
}

func (f *forgotten) times(id idOf) int {
	n, _ := f.ids.Load(id)
	times, _ := n.(int)
	return times
}

// forget has the client forget the ID that it had when it had forgotten so many.
func (f *forgotten) forget(id idOf, times int) {
	f.one.Lock()
	defer f.one.Unlock()
	if f.times(id) == times {
		id.client.PurgeTopicsFromProducing(id.topic)
		f.ids.Store(id, times+1)
	}
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

// wait returns what became of the record, or the cause of ctx, if it ends before.
func (p *produced) wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
