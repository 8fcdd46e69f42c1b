package patterntest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/kafkaonce"
	"github.com/everonce/everonce/internal/testserver"
)

// log is a topic of a test's own, and the offsets of its consumers beside a store.
type log[Tx any] struct {
	t       testing.TB
	h       *handle[Tx]
	topic   kafkaonce.Topic
	offsets *kafkaonce.Offsets[Tx]
	client  *kgo.Client
	admin   *kadm.Client
}

func newLog[Tx any](t testing.TB, h *handle[Tx], partitions int32) *log[Tx] {
	t.Helper()
	l := &log[Tx]{t: t, h: h, topic: kafkaonce.Topic{Name: "test." + strings.ToLower(rand.Text()), Delays: []time.Duration{100 * time.Millisecond}}}
	var err error
	l.client, err = kgo.NewClient(kgo.SeedBrokers(strings.TrimPrefix(testserver.URL(t, "kafka"), "kafka://")), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	l.admin = kadm.NewClient(l.client)
	if _, err := l.admin.CreateTopic(t.Context(), partitions, 1, nil, l.topic.Name); err != nil {
		t.Fatal(err)
	}
	for { // the broker answers before it has it
		topics, err := l.admin.ListTopics(t.Context(), l.topic.Name)
		if err != nil {
			t.Fatal(err)
		}
		if topics[l.topic.Name].Err == nil {
			break
		}
	}
	t.Cleanup(func() {
		if _, err := l.admin.DeleteTopics(context.Background(), l.topic.Name, l.topic.Name+".dead", l.topic.Name+".retry.100ms"); err != nil {
			t.Error(err)
		}
		l.client.Close()
	})
	if l.offsets, err = kafkaonce.NewOffsets(h.receiver); err != nil {
		t.Fatal(err)
	}
	if err := l.offsets.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *log[Tx]) send(partition int32, ids ...string) {
	l.t.Helper()
	for _, id := range ids {
		r := &kgo.Record{Topic: l.topic.Name, Partition: partition, Value: []byte(`{}`), Headers: []kgo.RecordHeader{{Key: "ce_id", Value: []byte(id)}}}
		if err := l.client.ProduceSync(l.t.Context(), r).FirstErr(); err != nil {
			l.t.Fatal(err)
		}
	}
}

// next is the offset in the table.
func (l *log[Tx]) next(partition int32) int {
	l.t.Helper()
	return l.h.number(l.t, "SELECT coalesce(max(next), -2) FROM everonce_kafka_offsets WHERE topic = $1 AND part = $2", l.topic.Name, partition)
}

// evict removes the members of the group, as a coordinator does that does not hear of them.
func (l *log[Tx]) evict() {
	l.t.Helper()
	groups, err := l.admin.DescribeGroups(l.t.Context(), l.topic.Name)
	if err != nil {
		l.t.Fatal(err)
	}
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = l.topic.Name
	for _, m := range groups[l.topic.Name].Members {
		member := kmsg.NewLeaveGroupRequestMember()
		member.MemberID = m.MemberID
		req.Members = append(req.Members, member)
	}
	if _, err := req.RequestWith(l.t.Context(), l.client); err != nil {
		l.t.Fatal(err)
	}
}

// member is a consumer that runs.
type member struct {
	t        testing.TB
	verdicts chan string
	events   chan kafkaonce.Event
	stop     func() error
	ended    func() error // waits for the end
}

// join runs a consumer until the test ends, or stop is called.
func (l *log[Tx]) join(spec consume.TxSpec[struct{}, Tx], opts kafkaonce.Options) *member {
	l.t.Helper()
	m := &member{t: l.t, verdicts: make(chan string, 10_000), events: make(chan kafkaonce.Event, 10_000)}
	spec.Consumer, spec.Key, spec.Offsets = "billing", consume.ProducerID(), l.offsets
	spec.Retry = consume.RetryPolicy{Limit: 100, Min: time.Millisecond, Max: time.Millisecond}
	spec.Observe = func(_ context.Context, msg *consume.Message, v consume.Decision) {
		m.verdicts <- fmt.Sprint(msg.ID, " ", v.Outcome, " fenced=", errors.Is(v.Err, kafkaonce.ErrFenced))
	}
	handler, err := consume.NewTx(l.h.receiver, spec)
	if err != nil {
		l.t.Fatal(err)
	}
	opts.Group, opts.Workers.Log = l.topic.Name, slog.New(slog.DiscardHandler)
	opts.SessionTimeout, opts.RebalanceTimeout = 3*time.Second, 4*time.Second
	opts.Observe = func(e kafkaonce.Event) { m.events <- e }
	c, err := kafkaonce.Dial(l.t.Context(), testserver.URL(l.t, "kafka"), l.topic, handler, &opts)
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	m.ended = sync.OnceValue(func() error { defer cancel(); return heard(l.t, done) })
	m.stop = func() error { cancel(); return m.ended() }
	l.t.Cleanup(func() { m.stop() })
	return m
}

func (m *member) wants(verdicts ...string) {
	m.t.Helper()
	for _, want := range verdicts {
		if got := heard(m.t, m.verdicts); got != want {
			m.t.Fatalf("%q, want %q", got, want)
		}
	}
}

func (m *member) event(kind kafkaonce.EventKind) {
	m.t.Helper()
	for heard(m.t, m.events).Kind != kind {
	}
}

func heard[T any](t testing.TB, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(hung):
		t.Fatalf("no %T came", v)
	}
	return v
}

// network can be held up, as by a process that stands still.
type network struct{ held sync.RWMutex }

func (n *network) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	return &heldConn{c, n}, err
}

type heldConn struct {
	net.Conn
	n *network
}

func (c *heldConn) Write(b []byte) (int, error) {
	c.n.held.RLock()
	defer c.n.held.RUnlock()
	return c.Conn.Write(b)
}
