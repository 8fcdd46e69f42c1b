package kafkaonce_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/kafkaonce"
)

// transforming runs a Transform from the bench's topic until the test ends, or stop is called.
func (b *bench) transforming(work func(context.Context, *kgo.Record) ([]*kgo.Record, error), opts kafkaonce.TransformOptions) (stop func()) {
	b.t.Helper()
	opts.Log, opts.SessionTimeout, opts.TransactionTimeout = quiet, 3*time.Second, cmp.Or(opts.TransactionTimeout, 5*time.Second)
	opts.Backoff.Min, opts.Backoff.Max = time.Millisecond, 10*time.Millisecond
	transform, err := kafkaonce.DialTransform(b.ctx, b.url, b.topic.Name, b.group, work, &opts)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := transform.Run(ctx); err != nil {
			b.t.Error(err)
		}
	}()
	stop = func() { cancel(); await(b.t, done, "the end of the transform") }
	b.t.Cleanup(stop)
	return stop
}

// to is a record for another topic, of a record.
func to(topic string, r *kgo.Record) *kgo.Record {
	return &kgo.Record{Topic: topic, Key: r.Key, Value: r.Value, Headers: r.Headers}
}

// lines are the connections of a process, until it is killed.
type lines struct {
	mu     sync.Mutex
	conns  []net.Conn
	killed bool
}

func (l *lines) dial(ctx context.Context, network, address string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.killed {
		return nil, errors.New("the process was killed")
	}
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	l.conns = append(l.conns, c)
	return c, err
}

func (l *lines) kill() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.killed = true
	for _, c := range l.conns {
		c.Close()
	}
}

// A transformer that is killed in the middle of a transaction leaves output that readers of committed records do not
// see. The next one transforms the same records, and the ordinary consumer of the output handles each once.
func TestTransformsEachRecordOnceAcrossAKilledWorker(t *testing.T) {
	t.Parallel()
	b, out := newBench(t, 1), newBench(t, 1)
	raw, err := kgo.NewClient(kgo.SeedBrokers(strings.TrimPrefix(b.url, "kafka://")), kgo.ConsumeTopics(out.topic.Name), kgo.FetchIsolationLevel(kgo.ReadUncommitted()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(raw.Close)
	const n = 20
	for i := range n {
		b.send(record(fmt.Sprint(i), "a"))
	}
	var process lines
	half := make(chan struct{})
	b.transforming(func(ctx context.Context, r *kgo.Record) ([]*kgo.Record, error) {
		if r.Offset == n/2 {
			close(half)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return []*kgo.Record{to(out.topic.Name, r)}, nil
	}, kafkaonce.TransformOptions{Client: []kgo.Opt{kgo.Dialer(process.dial)}, TransactionalID: b.group})
	await(t, half, "the middle")
	for seen := 0; seen == 0; { // some output has reached the broker
		fetches := raw.PollFetches(b.ctx)
		if err := fetches.Err0(); err != nil {
			t.Fatal(err)
		}
		seen = fetches.NumRecords()
	}
	process.kill()
	handled := make(chan string, 100)
	spec := specOf(func(_ context.Context, _ *consume.Message, o order) error { handled <- o.ID; return nil })
	spec.Key = consume.BrokerID() // an aborted copy would be another message
	r := out.run(spec, nil)
	b.transforming(func(_ context.Context, r *kgo.Record) ([]*kgo.Record, error) {
		return []*kgo.Record{to(out.topic.Name, r)}, nil
	}, kafkaonce.TransformOptions{TransactionalID: b.group}) // as the process that is started again
	for i := range n {
		r.wants(everonce.Executed)
		if id := <-handled; id != fmt.Sprint(i) {
			t.Errorf("%s was handled, want %d", id, i)
		}
	}
	b.send(record("last", "a"))
	r.wants(everonce.Executed)
	if id := <-handled; id != "last" {
		t.Errorf("%s was handled once more", id)
	}
}

// If the function fails or panics, the transaction is aborted and retried: readers never see its output.
func TestTransformAbortsWhatFails(t *testing.T) {
	t.Parallel()
	b, out := newBench(t, 1), newBench(t, 1)
	var handled []string
	spec := specOf(func(_ context.Context, _ *consume.Message, o order) error {
		handled = append(handled, o.ID)
		return nil
	})
	spec.Key = consume.BrokerID()
	r := out.run(spec, nil)
	b.send(record("1", "a"), record("2", "a"), record("3", "a"))
	tries := 0
	b.transforming(func(_ context.Context, r *kgo.Record) ([]*kgo.Record, error) {
		if r.Offset == 1 {
			switch tries++; tries {
			case 1:
				return nil, errors.New("not yet")
			case 2:
				panic("not yet")
			case 3:
				return []*kgo.Record{to(strings.Repeat("x", 300), r)}, nil // no topic has such a name
			}
		}
		return []*kgo.Record{to(out.topic.Name, r)}, nil
	}, kafkaonce.TransformOptions{})
	r.wants(everonce.Executed, everonce.Executed, everonce.Executed)
	r.stop()
	if got := strings.Join(handled, " "); got != "1 2 3" {
		t.Errorf("%s were handled, want 1 2 3", got)
	}
}

// A transaction that takes longer than it may is aborted by Kafka, which makes its producer look like a fenced one. It is made again.
func TestTransformOutlivesASlowTransaction(t *testing.T) {
	t.Parallel()
	b, out := newBench(t, 1), newBench(t, 1)
	b.send(record("1", "a"), record("2", "a"))
	var handled []string
	spec := specOf(func(_ context.Context, _ *consume.Message, o order) error {
		handled = append(handled, o.ID)
		return nil
	})
	spec.Key = consume.BrokerID()
	r := out.run(spec, nil)
	slow := true
	b.transforming(func(ctx context.Context, r *kgo.Record) ([]*kgo.Record, error) {
		if r.Offset == 1 && slow {
			slow = false
			await(t, ctx.Done(), "the deadline")
			for id := b.group + "-slow"; ; { // Kafka looks every 10 s
				state, err := b.admin.DescribeTransactions(b.ctx, id)
				if err != nil {
					return nil, err
				}
				if state[id].State == "CompleteAbort" {
					break
				}
			}
		}
		return []*kgo.Record{to(out.topic.Name, r)}, nil
	}, kafkaonce.TransformOptions{TransactionalID: "slow", TransactionTimeout: time.Second})
	r.wants(everonce.Executed, everonce.Executed)
	r.stop()
	if got := strings.Join(handled, " "); got != "1 2" {
		t.Errorf("%s were handled, want 1 2", got)
	}
}

// silence is a network that loses every answer from the first produce request on, and reports when that begins.
type silence struct {
	produced chan struct{}
	lost     atomic.Bool
}

func (s *silence) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	return &silentConn{c, s}, err
}

type silentConn struct {
	net.Conn
	s *silence
}

func (c *silentConn) Write(b []byte) (int, error) {
	if len(b) > 6 && b[4] == 0 && b[5] == 0 && c.s.lost.CompareAndSwap(false, true) { // the API's number, behind the length
		defer close(c.s.produced)
	}
	return c.Conn.Write(b)
}

func (c *silentConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || !c.s.lost.Load() {
			return n, err
		}
	}
}

// Run of a Transform ends without waiting for a broker that does not answer.
func TestTransformEndsWithoutItsBroker(t *testing.T) {
	t.Parallel()
	b, out := newBench(t, 1), newBench(t, 1)
	b.send(record("1", "a"))
	s := &silence{produced: make(chan struct{})}
	stop := b.transforming(func(_ context.Context, r *kgo.Record) ([]*kgo.Record, error) {
		return []*kgo.Record{to(out.topic.Name, r)}, nil
	}, kafkaonce.TransformOptions{Client: []kgo.Opt{kgo.Dialer(s.dial)}, TransactionTimeout: 10 * time.Minute})
	await(t, s.produced, "the output")
	stop()
}

func TestTransformRefuses(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	work := func(_ context.Context, r *kgo.Record) ([]*kgo.Record, error) {
		return []*kgo.Record{to(r.Topic+".none", r)}, nil
	}
	if _, err := kafkaonce.DialTransform(b.ctx, b.url, newName(), b.group, work, nil); !errors.Is(err, kafkaonce.ErrTopology) {
		t.Errorf("a topic that does not exist: %v", err)
	}
	if _, err := kafkaonce.DialTransform(b.ctx, b.url, b.topic.Name, "", work, nil); !errors.Is(err, everonce.ErrInvalidArgument) {
		t.Errorf("no group: %v", err)
	}
	long, err := kafkaonce.DialTransform(b.ctx, b.url, b.topic.Name, b.group, work, &kafkaonce.TransformOptions{TransactionTimeout: time.Hour, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	b.send(record("1", "a"))
	if err := long.Run(b.ctx); !errors.Is(err, everonce.ErrInvalidArgument) {
		t.Errorf("a timeout that is more than the broker's: %v", err)
	}
}
