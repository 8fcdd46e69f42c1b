package kafkaonce_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/kafkaonce"
	"github.com/everonce/everonce/store/memstore"
)

// open opens the dead letters.
func (b *bench) open() *kafkaonce.DeadLetters {
	b.t.Helper()
	l, err := kafkaonce.DialDeadLetters(b.ctx, b.url, b.topic, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { l.Close() }) //nolint:errcheck // it has none
	return l
}

func (b *bench) all(l *kafkaonce.DeadLetters, filter consume.Filter) (all []consume.DeadLetter) {
	b.t.Helper()
	for letter, err := range l.All(b.ctx, filter) {
		if err != nil {
			b.t.Fatal(err)
		}
		all = append(all, letter)
	}
	return all
}

// A retry comes when its delay is over, says which one it is, and is otherwise the message that was sent.
func TestARetryIsTheSameMessageLater(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	var tries []consume.Message
	var last time.Time
	r := b.run(specOf(func(_ context.Context, m *consume.Message, _ order) error {
		if n := len(tries); n > 0 && time.Since(last) < 100*time.Millisecond {
			t.Errorf("try %d came after %v", n, time.Since(last))
		}
		last = time.Now()
		if tries = append(tries, *m); len(tries) < 3 {
			return everonce.NotDone(errors.New("not yet"))
		}
		return nil
	}), nil)
	sent := record("m-1", "\xffkey")
	sent.Headers = append(sent.Headers, kgo.RecordHeader{Key: "null"}, kgo.RecordHeader{Key: "binary", Value: []byte{0xff}}, kgo.RecordHeader{Key: "twice", Value: []byte("1")}, kgo.RecordHeader{Key: "twice", Value: []byte("2")})
	sent.Timestamp = time.UnixMilli(1_700_000_000_000)
	b.send(sent)
	r.wants(everonce.Failed, everonce.Failed, everonce.Executed)
	for i, m := range tries {
		if m.Retries != i || m.ID != "m-1" || m.BrokerID != b.topic.Name+":0:0" || m.Source != b.topic.Name || m.Subject != "\xffkey" || !m.First.Equal(sent.Timestamp) ||
			!slices.Equal(m.OmittedHeaders, []string{"binary"}) || len(m.Headers) != 3 || m.Headers["twice"] != "2" || m.Deliveries != 0 || string(m.Body) != `{"id":"m-1"}` {
			t.Errorf("try %d: %+v", i, m)
		}
		if v, ok := m.Headers["null"]; v != "" || !ok {
			t.Error("a header without a value is not an empty one")
		}
	}
}

// Two consumers of one topic, which both fail: each retries its own messages up to the limit, and not the other's.
func TestConsumersOfOneTopicRetryTheirOwn(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	var runs []*running
	for _, name := range []string{"billing", "mail"} {
		spec := specOf(func(context.Context, *consume.Message, order) error { return everonce.NotDone(errors.New("not yet")) })
		spec.Consumer, b.group = name, newName()
		runs = append(runs, b.run(spec, nil))
	}
	b.send(record("m-1", "a"))
	for _, r := range runs {
		for try := range 4 {
			if v := await(t, r.decisions, "a decision"); (v.Disposition == consume.SetAside) != (try == 3) {
				t.Errorf("try %d: %v", try, v.Disposition)
			}
		}
	}
	for _, r := range runs {
		r.stop()
		if n := len(r.decisions); n != 0 {
			t.Errorf("%d more decisions", n)
		}
	}
	if all := b.all(b.open(), consume.Filter{}); len(all) != 2 || all[0].Consumer == all[1].Consumer {
		t.Errorf("%+v", all)
	}
}

// A message that fails too often becomes a dead letter with its reason and its origin. A replay runs it again, and
// removes the dead letter.
func TestADeadLetterRunsWhenItIsReplayed(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	var mended atomic.Bool
	spec := specOf(func(context.Context, *consume.Message, order) error {
		if !mended.Load() {
			return everonce.NotDone(errors.New("the bank is closed"))
		}
		return nil
	})
	spec.Retry.Limit = 1
	r := b.run(spec, nil)
	b.send(record("m-1", "a"))
	r.wants(everonce.Failed)
	exhausted := await(t, r.decisions, "a decision")
	l := b.open()
	var all []consume.DeadLetter
	for len(all) == 0 {
		all = b.all(l, consume.Filter{})
	}
	if d := all[0]; d.Reason != consume.Exhausted || !strings.Contains(d.Detail, "the bank is closed") || d.Consumer != "billing" || d.Source != b.topic.Name || d.Queue != b.topic.Name ||
		d.KeyHash != exhausted.KeyHash || d.Attempts != 2 || d.Message.Subject != "a" || d.Message.BrokerID != b.topic.Name+":0:0" || string(d.Message.Body) != `{"id":"m-1"}` || len(d.ID) != 16 {
		t.Errorf("%+v of %+v", d, d.Message)
	}
	mended.Store(true)
	if n, err := l.Replay(b.ctx, consume.Filter{ID: all[0].ID}); n != 1 || err != nil {
		t.Fatalf("replayed %d, %v", n, err)
	}
	r.wants(everonce.Executed)
	if left := b.all(l, consume.Filter{}); len(left) != 0 {
		t.Errorf("%d dead letters are left", len(left))
	}
}

// A message whose outcome was unknown was settled as done. Its replay is a duplicate.
func TestAReplayedDeadLetterIsADuplicateIfTheWorkWasDone(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	store := memstore.New(nil)
	works := 0
	r := b.runOn(store, specOf(func(context.Context, *consume.Message, order) error {
		works++
		return errors.New("no answer")
	}), nil)
	b.send(record("m-1", "a"))
	r.wants(everonce.Unknown)
	l := b.open()
	for len(b.all(l, consume.Filter{Reasons: []consume.Reason{consume.Unknown}})) == 0 {
	}
	recv, err := everonce.NewReceiver(store, everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := recv.Settle(b.ctx, everonce.Key{Scope: everonce.ScopeOf("billing"), ID: "m-1"}, everonce.Settlement{Verdict: everonce.SettleDone}); err != nil {
		t.Fatal(err)
	}
	if n, err := l.Replay(b.ctx, consume.Filter{}); n != 1 || err != nil {
		t.Fatalf("replayed %d, %v", n, err)
	}
	r.wants(everonce.Elided)
	if works != 1 {
		t.Errorf("the work ran %d times", works)
	}
}

// A bad message becomes a dead letter with the reason, and later messages are handled. A message without a body is not
// lost either: a dead letter with a null value would be a tombstone.
func TestBadInputIsADeadLetter(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	spec := specOf(nothing)
	spec.MaxBody = 1000
	r := b.run(spec, nil)
	noID, empty, null, text, large, long := record("", "a"), record("m-1", "b"), record("m-2", "c"), record("m-3", "d"), record("m-4", "e"), record(strings.Repeat("x", 100_000), "f")
	noID.Headers = nil
	empty.Value, null.Value, text.Value, large.Value = []byte{}, nil, []byte("no JSON"), make([]byte, 2000)
	long.Value = []byte(`{}`)
	blank, odd, twice, other := record("", "h"), record("\xff", "i"), record("m-5", "j"), record("good", "g")
	twice.Headers = append(twice.Headers, kgo.RecordHeader{Key: "ce_id", Value: []byte("")}) // the last one counts
	other.Value = []byte(`{"id":"another"}`)
	b.send(noID, empty, null, text, large, long, record("good", "g"), blank, odd, twice, other)
	for range 11 {
		await(t, r.decisions, "a decision")
	}
	r.stop()
	found := map[string]consume.Reason{}
	l := b.open()
	for _, d := range b.all(l, consume.Filter{}) {
		found[d.Message.Subject] = d.Reason
		if isNull := d.Message.Body == nil; isNull != (d.Message.Subject == "c") {
			t.Errorf("%s is null: %v", d.Message.Subject, isNull)
		}
	}
	for key, want := range map[string]consume.Reason{
		"a": consume.NoKey, "b": consume.Undecodable, "c": consume.Undecodable, "d": consume.Undecodable, "e": consume.TooLarge, "f": consume.NoKey,
		"h": consume.NoKey, "i": consume.NoKey, "j": consume.NoKey, "g": consume.Mismatch,
	} {
		if found[key] != want {
			t.Errorf("%s: %q, want %q", key, found[key], want)
		}
	}
	if n, err := l.Discard(b.ctx, consume.Filter{Limit: 4}); n != 4 || err != nil {
		t.Errorf("discarded %d, %v", n, err)
	}
	if left := b.all(l, consume.Filter{}); len(left) != 6 {
		t.Errorf("%d dead letters are left, want 6", len(left))
	}
	if at := b.committed(0); at != 11 {
		t.Errorf("%d is committed, want 11", at)
	}
}

// A message that is too large for the retry topics becomes a dead letter. If it is too large for that topic too, the
// dead letter has no body, but says where the message is. It blocks nothing.
func TestAMessageThatIsTooLargeForACopy(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	b.topic.Topology = kafkaonce.Check
	small := map[string]*string{"max.message.bytes": kadm.StringPtr("8192")}
	b.create(b.letters(), 1, map[string]*string{"max.message.bytes": small["max.message.bytes"], "cleanup.policy": kadm.StringPtr("compact")})
	b.create(b.retry("100ms"), 1, small)
	b.create(b.retry("400ms"), 1, small)
	r := b.run(specOf(func(_ context.Context, m *consume.Message, _ order) error {
		if len(m.Body) > 1000 || len(m.Headers) > 1 {
			return everonce.NotDone(errors.New("not yet"))
		}
		return nil
	}), nil)
	large := record("large", "a")
	large.Value = []byte(`{"id":"` + random(20_000) + `"}`)
	headers := record("headers", "a")
	headers.Headers = append(headers.Headers, kgo.RecordHeader{Key: "large", Value: []byte(random(20_000))})
	b.send(large, headers, record("good", "a"))
	seen := map[consume.Disposition]int{} // first a decision to retry, and then, of the same message, one to set it aside
	for seen[consume.SetAside] < 2 || seen[consume.Ack] < 1 {
		seen[await(t, r.decisions, "a decision").Disposition]++
	}
	r.stop()
	l := b.open()
	all := b.all(l, consume.Filter{})
	if len(all) != 2 {
		t.Fatalf("%+v", all)
	}
	for i, at := range []string{b.topic.Name + ":0:0", b.topic.Name + ":0:1"} {
		if all[i].Reason != consume.TooLarge || len(all[i].Message.Body) != 0 || !strings.Contains(all[i].Detail, at) {
			t.Errorf("%+v", all[i])
		}
	}
	if n, err := l.Replay(b.ctx, consume.Filter{}); n != 0 || err == nil {
		t.Errorf("replayed %d, %v", n, err)
	}
}

// A message that its producer compressed well is retried, set aside and replayed unchanged, though its uncompressed
// size is over the topics' limit.
func TestAMessageThatIsLargeBeforeItIsCompressed(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	b.set(b.topic.Name, map[string]string{"max.message.bytes": "5000"})
	var mended atomic.Bool
	spec := specOf(func(context.Context, *consume.Message, order) error {
		if !mended.Load() {
			return everonce.NotDone(errors.New("not yet"))
		}
		return nil
	})
	spec.Retry.Limit = 1
	r := b.run(spec, nil)
	producer, err := kgo.NewClient(kgo.SeedBrokers(strings.TrimPrefix(b.url, "kafka://")), kgo.ProducerBatchCompression(kgo.GzipCompression()))
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	m := record("m-1", "a")
	m.Topic, m.Value = b.topic.Name, []byte(`{"id":"`+strings.Repeat("x", 900_000)+`"}`)
	if err := producer.ProduceSync(b.ctx, m).FirstErr(); err != nil {
		t.Fatal(err)
	}
	r.wants(everonce.Failed, everonce.Failed)
	l := b.open()
	var all []consume.DeadLetter
	for len(all) == 0 {
		all = b.all(l, consume.Filter{})
	}
	if len(all[0].Message.Body) != len(m.Value) || all[0].Reason != consume.Exhausted {
		t.Errorf("%d bytes, %s, %s", len(all[0].Message.Body), all[0].Reason, all[0].Detail)
	}
	mended.Store(true)
	if n, err := l.Replay(b.ctx, consume.Filter{}); n != 1 || err != nil {
		t.Fatalf("replayed %d, %v", n, err)
	}
	r.wants(everonce.Executed)
}
