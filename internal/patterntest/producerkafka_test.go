package patterntest

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/everonce/everonce/internal/testserver"
	"github.com/everonce/everonce/session/producer"
	"github.com/everonce/everonce/session/producer/sqlproducer"
)

// recorded is what franz-go and a broker have said. To record it anew: go test -run TestKafkaProducer -record-producer
// .
const recorded = "testdata/producer-kafka.jsonl"

var recordProducer = flag.Bool("record-producer", false, "write what the Kafka broker answers to "+recorded)

const partitions = 3

// schedule has franz-go produce to the broker: over several partitions, with answers that are lost, an epoch that it
// raises after it has given a record up, late copies of what it has sent, and two runs of one transactional.id.
func schedule(t *testing.T) []produced {
	t.Helper()
	h := onSQLite(t)
	topic := newLog(t, h, partitions).topic.Name
	w := &wire{t: t, ids: map[int64]int64{}}
	ctx, cancel := context.WithTimeout(t.Context(), hung)
	defer cancel()
	begin := func(opts ...kgo.Opt) *kgo.Client {
		c, err := kgo.NewClient(append([]kgo.Opt{
			kgo.SeedBrokers(strings.TrimPrefix(testserver.URL(t, "kafka"), "kafka://")), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.Dialer(w.dial), kgo.ProducerBatchMaxBytes(512), kgo.ProducerLinger(0), kgo.RetryBackoffFn(func(int) time.Duration { return 10 * time.Millisecond }),
		}, opts...)...)
		must(t, err)
		t.Cleanup(c.Close)
		return c
	}
	record := func(partition int, n int) *kgo.Record {
		return &kgo.Record{Partition: int32(partition), Value: fmt.Appendf(nil, "%04d%s", n, strings.Repeat("x", n%60))} //nolint:gosec // few
	}
	produce := func(c *kgo.Client, n int) error {
		var records []*kgo.Record
		for i := range n {
			records = append(records, record(i%partitions, i))
		}
		return c.ProduceSync(ctx, records...).FirstErr()
	}
	cutting := func(cut func(n int) bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		answers := 0
		w.cut = func(kmsg.Response) bool { answers++; return cut != nil && cut(answers) }
	}
	late := func(c *kgo.Client, req *kmsg.ProduceRequest) {
		t.Helper()
		_, err := c.SeedBrokers()[0].Request(ctx, req)
		must(t, err)
	}

	c := begin(kgo.AllowIdempotentProduceCancellation())
	cutting(func(n int) bool { return n%3 == 2 })
	must(t, produce(c, 150))
	cutting(nil)
	for range 6 { // more than the window, so that the first is below it
		must(t, produce(c, 2*partitions))
	}
	first, last := w.sent[0], w.sent[len(w.sent)-1]
	late(c, first)
	late(c, last)
	late(c, changed(t, last, 1000))

	given, giveUp := context.WithCancel(ctx)
	cutting(func(int) bool { giveUp(); return true })
	if err := c.ProduceSync(given, record(0, 0)).FirstErr(); err == nil {
		t.Fatal("the record that was given up is produced")
	}
	cutting(nil)
	must(t, produce(c, 30)) // in the next epoch
	late(c, last)

	name := kgo.TransactionalID(topic)
	early := begin(name)
	for range 2 {
		must(t, early.BeginTransaction())
		must(t, produce(early, 20))
		must(t, early.EndTransaction(ctx, kgo.TryCommit))
	}
	must(t, early.BeginTransaction())
	must(t, produce(early, 20))
	later := begin(name)
	must(t, later.BeginTransaction())
	must(t, produce(later, 20))
	must(t, later.EndTransaction(ctx, kgo.TryCommit))
	if err := produce(early, partitions); err == nil {
		t.Error("the broker has not fenced the earlier run")
	}

	w.mu.Lock()
	defer w.mu.Unlock()
	return w.events
}

// sequencer is a host of ours.
type sequencer interface {
	// grant has a producer of the recording granted an epoch; a name is empty for one that has none.
	grant(id int64, name string, epoch int16) error
	send(e produced) (producer.Decision, error)
	// count returns how many records a partition has.
	count(partition int32) (int64, error)
}

// refusalsOf are what we answer where the broker answers an error. It has one for a gap and for a batch below the
// window; and a transaction that has ended is none of our rules, but the run is fenced.
var refusalsOf = map[string][]producer.Refusal{
	"OUT_OF_ORDER_SEQUENCE_NUMBER": {producer.ErrOutOfOrder, producer.ErrTooOld},
	"INVALID_PRODUCER_EPOCH":       {producer.ErrFenced},
	"PRODUCER_FENCED":              {producer.ErrFenced},
	"INVALID_TXN_STATE":            {producer.ErrFenced},
}

// replay gives a host the requests that the broker got. If the broker has appended a batch, so must the host; a
// duplicate to the broker is one at the same position; a refused batch is refused.
func replay(t *testing.T, events []produced, s sequencer) {
	t.Helper()
	type place struct {
		partition int32
		offset    int64
	}
	places, totals, known := map[place]int64{}, map[int32]int64{}, map[int64]bool{}
	seen := map[string]int{}
	for i, e := range events {
		if e.Grant != "" || !known[e.Producer] {
			known[e.Producer] = true
			must(t, s.grant(e.Producer, e.Grant, e.Epoch))
		}
		if e.Grant != "" {
			seen["granted"]++
			continue
		}
		a, err := s.send(e)
		must(t, err)
		at := place{e.Partition, e.Offset}
		position, there := places[at]
		kind := "appended"
		switch {
		case e.Error != "":
			if kind = a.Err.Error(); !slices.Contains(refusalsOf[e.Error], a.Err) {
				t.Errorf("%d: %+v for %+v", i, a, e)
			}
		case there:
			kind = "duplicate"
			if !a.Duplicate || a.Position != position {
				t.Errorf("%d: %+v for %+v, want a duplicate at %d", i, a, e, position)
			}
		default:
			if a.Err != 0 || a.Duplicate {
				t.Errorf("%d: %+v for %+v, want it appended", i, a, e)
			}
			places[at] = a.Position
			totals[e.Partition] += int64(e.Count)
		}
		if seen[kind]++; e.Lost {
			seen["lost"]++
		}
	}
	for partition, want := range totals {
		if n, err := s.count(partition); n != want || err != nil {
			t.Errorf("partition %d has %d records, %v; the broker has %d", partition, n, err, want)
		}
	}
	for _, kind := range []string{
		"granted", "appended", "duplicate", "lost", producer.ErrOutOfOrder.Error(), producer.ErrTooOld.Error(), producer.ErrFenced.Error(),
	} {
		if seen[kind] == 0 {
			t.Errorf("nothing was %s: the recording is blind: %v", kind, seen)
		}
	}
	t.Logf("%v", seen)
}

// tableHost is the rules in memory.
type tableHost struct {
	*producer.Table
	ids  map[int64]producer.ID
	next map[int32]int64
}

func (h *tableHost) grant(id int64, name string, epoch int16) error {
	g := h.Next(name)
	if name != "" {
		g.Epoch = epoch
	}
	h.ids[id] = g.Producer
	return h.Admit(name, g)
}

func (h *tableHost) send(e produced) (producer.Decision, error) {
	b := producer.Batch{Producer: h.ids[e.Producer], Epoch: e.Epoch, First: e.First, Count: int(e.Count)}
	return h.Apply(fmt.Sprint(e.Partition), &b, func() (int64, error) {
		h.next[e.Partition] += int64(e.Count)
		return h.next[e.Partition] - int64(e.Count), nil
	})
}

func (h *tableHost) count(partition int32) (int64, error) { return h.next[partition], nil }

// rowsHost is the log in a database.
type rowsHost[Tx any] struct {
	streams[Tx]
	ctx context.Context
	ids map[int64]producer.ID
}

func (h *rowsHost[Tx]) grant(id int64, name string, epoch int16) error {
	for {
		g, err := h.InitProducer(h.ctx, name)
		if err != nil {
			return err
		}
		if h.ids[id] = g.Producer; name == "" || g.Epoch >= epoch {
			return nil
		}
	}
}

func (h *rowsHost[Tx]) send(e produced) (producer.Decision, error) {
	b := &sqlproducer.Batch{Stream: fmt.Sprint(e.Partition), Producer: h.ids[e.Producer], Epoch: e.Epoch, First: e.First}
	for i := range e.Count {
		b.Records = append(b.Records, fmt.Appendf(nil, "%d %d %d", e.Producer, e.Epoch, e.First+i))
	}
	return h.Append(h.ctx, b)
}

func (h *rowsHost[Tx]) count(partition int32) (int64, error) {
	records, err := h.Read(h.ctx, fmt.Sprint(partition), 0, math.MaxInt)
	for err == nil && len(records) > 0 {
		var more []sqlproducer.Record
		if more, err = h.Read(h.ctx, fmt.Sprint(partition), records[len(records)-1].Position+1, math.MaxInt); len(more) == 0 {
			break
		}
		records = append(records, more...)
	}
	return int64(len(records)), err
}

func replayInRows[Tx any](t *testing.T, h *handle[Tx], events []produced) {
	s := &rowsHost[Tx]{newStreams(t, h, nil), t.Context(), map[int64]producer.ID{}}
	for partition := range partitions {
		must(t, s.CreateStream(t.Context(), fmt.Sprint(partition)))
	}
	replay(t, events, s)
}

func newTableHost() *tableHost {
	return &tableHost{producer.NewTable(0), map[int64]producer.ID{}, map[int32]int64{}}
}

// TestKafkaProducer records what franz-go sends to the real broker and what that answers, and has our rules answer the
// same.
func TestKafkaProducer(t *testing.T) {
	t.Parallel()
	events := schedule(t)
	if *recordProducer {
		var b bytes.Buffer
		for _, e := range events {
			must(t, json.NewEncoder(&b).Encode(e))
		}
		must(t, os.WriteFile(recorded, b.Bytes(), 0o644)) //nolint:gosec // not a secret
	}
	replay(t, events, newTableHost())
}

// TestRecordedKafkaProducer has our rules and each database answer as the broker did when it was recorded.
func TestRecordedKafkaProducer(t *testing.T) {
	t.Parallel()
	file, err := os.Open(recorded)
	must(t, err)
	defer file.Close()
	var events []produced
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var e produced
		must(t, json.Unmarshal(lines.Bytes(), &e))
		events = append(events, e)
	}
	t.Run("table", func(t *testing.T) { replay(t, events, newTableHost()) })
	t.Run("rows", func(t *testing.T) {
		onAll(t, func(t *testing.T, h *handle[pgx.Tx]) { replayInRows(t, h, events) }, func(t *testing.T, h *handle[*sql.Tx]) { replayInRows(t, h, events) })
	})
}
