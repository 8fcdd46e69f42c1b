package kafkaonce

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// produced is a record that is being produced.
type produced struct {
	done chan struct{}
	err  error // once done is closed
}

// deliverTimeout is how long a record waits for a broker. After a longer wait it would arrive beside later copies.
const deliverTimeout = 10 * time.Second

// produce sends a record. If it is refused as part of a batch, produce sends it once more through alone, if not nil: a
// broker refuses all records of a batch for one of them. A sent record cannot be recalled, so its context is the
// client's and not the caller's.
func (f *forgotten) produce(client, alone *kgo.Client, r *kgo.Record) *produced {
	p := &produced{done: make(chan struct{})}
	ctx, cancel := context.WithTimeout(context.Background(), deliverTimeout)
	r.Context = ctx // the context of an earlier try has ended
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
		if alone != nil && isRefusal(err) {
			go alone.Produce(ctx, r, end(alone)) // waits for its turn
			return
		}
		sent(r, err)
	})
	return p
}

// idOf is the key of a topic's ID in a client.
type idOf struct {
	client *kgo.Client
	topic  string
}

// forgotten makes clients forget the IDs of deleted topics. A client that knows a topic by its ID never produces to a
// new topic of that name. A client that forgets an ID counts its records from zero again, and a broker takes a known
// number for a duplicate. So each ID is forgotten only once, even if several calls find the topic deleted.
type forgotten struct {
	one sync.Mutex
	ids sync.Map // number of times, by idOf
}

func (f *forgotten) times(id idOf) int {
	n, _ := f.ids.Load(id)
	times, _ := n.(int)
	return times
}

// forget makes the client forget an ID, if it was forgotten that many times so far.
func (f *forgotten) forget(id idOf, times int) {
	f.one.Lock()
	defer f.one.Unlock()
	if f.times(id) == times {
		id.client.PurgeTopicsFromProducing(id.topic)
		f.ids.Store(id, times+1)
	}
}

// newAlone returns a client that sends one record at a time, whatever its size before compression.
func newAlone(url string, opts []kgo.Opt) (*kgo.Client, error) {
	return newClient(url, opts, []kgo.Opt{
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.MaxBufferedRecords(1), kgo.ProducerLinger(0), kgo.ProducerBatchMaxBytes(largestCopy), kgo.BrokerMaxWriteBytes(largestCopy),
	})
}

// dense selects a strong compression. Otherwise a copy of a message that its producer compressed may be too large for
// its own topic.
func dense() kgo.Opt {
	return kgo.ProducerBatchCompression(kgo.ZstdCompression(), kgo.NoCompression())
}

// largestCopy is the largest size of a record before compression that is sent alone; the broker enforces the limit of
// its topic.
const largestCopy = 100 << 20

// tooLarge reports whether a topic refuses a record for its size.
func tooLarge(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge)
}

// isRefusal reports whether a topic always refuses a record, or another one of its batch.
func isRefusal(err error) bool {
	return tooLarge(err) || errors.Is(err, kerr.InvalidRecord) || errors.Is(err, kerr.InvalidTimestamp)
}

// wait returns the result of producing the record, or the cause of ctx if ctx ends first.
func (p *produced) wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
