package natsonce_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/natsonce"
)

// withSchedules makes the bench's stream a work queue that takes schedules, and returns the subject of jobs.
func (b *bench) withSchedules() (jobs string) { return b.withSchedulesIn(jetstream.WorkQueuePolicy) }

func (b *bench) withSchedulesIn(retention jetstream.RetentionPolicy) (jobs string) {
	b.t.Helper()
	if err := b.js.DeleteStream(context.Background(), b.queue.Stream); err != nil {
		b.t.Fatal(err)
	}
	b.stream(jetstream.StreamConfig{
		Name: b.queue.Stream, Subjects: []string{b.queue.Stream + ".jobs.>", b.queue.Stream + ".timers.>"}, Retention: retention, AllowMsgSchedules: true,
	})
	jobs = b.queue.Stream + ".jobs.>"
	b.queue.Subjects = []string{jobs}
	return jobs
}

// schedule is a message with an ID that fires as the pattern says.
func (b *bench) schedule(name, pattern string) *nats.Msg {
	msg := b.message("order")
	msg.Subject = b.queue.Stream + "." + name
	msg.Header.Set("ce-id", "same")
	msg.Header.Set(jetstream.ScheduleHeader, pattern)
	msg.Header.Set(jetstream.ScheduleTargetHeader, b.queue.Stream+".jobs.run")
	return msg
}

// Trap: a schedule is delivered at once, like any message, and its acknowledgement deletes it from a work queue. It is neither handled nor
// acknowledged, and fires at its time; sent again after that, it fires again, and its message is known by its ID.
func TestTrapAScheduleIsDeliveredBeforeItsTime(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.withSchedules()
	log := logging{make(chan string, 1000)}
	spec := specOf(func(_ context.Context, m *consume.Message, _ order) error {
		if m.Headers[jetstream.SchedulerHeader] == "" {
			t.Errorf("the schedule itself was handled: %v", m.Headers)
		}
		return nil
	})
	spec.Key = consume.ProducerID()
	r := b.run(spec, &natsonce.Options{Workers: consume.Workers{Concurrency: 1, Log: log.logger()}})
	at := func() string { return "@at " + time.Now().Add(1500*time.Millisecond).Format(time.RFC3339Nano) }
	b.publish(b.schedule("jobs.later", at()))
	log.wants(t, "a schedule was delivered")
	r.wants(everonce.Executed)
	b.publish(b.schedule("jobs.later", at()))
	r.wants(everonce.Replayed)
	b.settled()
}

// In a stream with limits retention a schedule is acknowledged, and still fires. A durable consumer that is lost then
// goes on after it, and not at the first message.
func TestSchedulesInAStreamOfLimits(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.withSchedulesIn(jetstream.LimitsPolicy)
	ticks := make(chan string, 1000)
	spec := specOf(func(_ context.Context, m *consume.Message, _ order) error {
		ticks <- m.Headers[jetstream.SchedulerHeader]
		return nil
	})
	spec.Key = consume.ProducerID()
	b.run(spec, one)
	b.publish(b.schedule("jobs.later", "@at "+time.Now().Add(1500*time.Millisecond).Format(time.RFC3339Nano)))
	b.publish(b.schedule("jobs.each", "@every 1s"))
	later, each := b.queue.Stream+".jobs.later", b.queue.Stream+".jobs.each"
	deadline := time.After(soon)
	for fired := map[string]int{}; fired[later] < 1 || fired[each] < 3; {
		select {
		case tick := <-ticks:
			fired[tick]++
		case <-deadline:
			t.Fatalf("ticks: %v", fired)
		}
	}
	b.eventually("a message behind the schedules is acknowledged, with all before it", func() bool { return b.consumer().AckFloor.Stream > 2 })
}

// A schedule in a work queue is unacknowledged until it has fired for the last time, and there is room for so many. When that is short, the log
// says so: also at the start of a consumer, to which they do not come for an hour.
func TestSchedulesThatLeaveNoRoomAreLogged(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	jobs := b.withSchedules()
	if _, err := b.js.CreateConsumer(context.Background(), b.queue.Stream, jetstream.ConsumerConfig{
		Durable: "billing", AckPolicy: jetstream.AckExplicitPolicy, AckWait: b.queue.AckWait, MaxDeliver: -1, MaxAckPending: 4, FilterSubjects: []string{jobs},
	}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"jobs.a", "jobs.b", "jobs.c"} {
		b.publish(b.schedule(name, "@at "+time.Now().Add(time.Hour).Format(time.RFC3339Nano)))
	}
	for range 2 {
		log := logging{make(chan string, 1000)}
		r := b.run(specOf(nothing), &natsonce.Options{Workers: consume.Workers{Concurrency: 1, Log: log.logger()}})
		log.wants(t, "3 of at most 4 messages (max_ack_pending)")
		r.stop()
	}
}

// Trap: each tick of a schedule has the headers that the schedule was published with, its ID among them. Each takes effect, also when it
// has become a dead letter and is replayed.
func TestTrapTheTicksOfAScheduleHaveOneID(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.withSchedules()
	fails := make(chan struct{}, 1)
	fails <- struct{}{}
	spec := specOf(func(context.Context, *consume.Message, order) error {
		select {
		case <-fails:
			return everonce.Permanent("no", errors.New("no"), nil)
		default:
			return nil
		}
	})
	spec.Key = consume.ProducerID()
	ids := make(chan string, 100)
	h := spec.Handle
	spec.Handle = func(ctx context.Context, m *consume.Message, o order) error {
		ids <- m.Occurrence
		return h(ctx, m, o)
	}
	r := b.run(spec, one)
	b.publish(b.schedule("timers.each", "@every 1s"))
	r.wants(everonce.Rejected, everonce.Executed, everonce.Executed)
	b.letter()
	letters, err := natsonce.DialDeadLetters(context.Background(), b.url, b.queue, quick(nil))
	if err != nil {
		t.Fatal(err)
	}
	defer letters.Close() //nolint:errcheck // a test's
	for l, err := range letters.All(context.Background(), consume.Filter{}) {
		if first := <-ids; err != nil || first == "" || l.Message.Occurrence != first {
			t.Errorf("the dead letter has the tick %q, want %q (%v)", l.Message.Occurrence, first, err)
		}
	}
	if n, err := letters.Replay(context.Background(), consume.Filter{}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	for range 10 { // the ticks go on meanwhile
		if r.decision().Outcome == everonce.Rejected {
			return
		}
	}
	t.Error("the replayed tick was taken for another one")
}

// A consumer of a stream with schedules must say which subjects are not schedules.
func TestConsumersOfSchedulesAreRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	jobs := b.withSchedules()
	for name, c := range map[string]struct {
		subjects []string
		refused  bool
	}{
		"all":      {nil, true},
		"wider":    {[]string{b.queue.Stream + ".>"}, true},
		"each":     {[]string{jobs, b.queue.Stream + ".timers.>"}, true},
		"jobs":     {[]string{jobs}, false},
		"narrower": {[]string{b.queue.Stream + ".*.run"}, false},
	} {
		q := b.queue
		q.Subjects, q.Durable = c.subjects, name
		other := *b
		other.queue = q
		err := other.dial()
		if refused := errors.Is(err, natsonce.ErrTopology) && strings.Contains(err.Error(), "Queue.Subjects"); refused != c.refused || err != nil && !refused {
			t.Errorf("%s: %v", name, err)
		}
		if err := b.js.DeleteConsumer(context.Background(), q.Stream, q.Durable); (err != nil) != c.refused {
			t.Errorf("%s: of one that is refused, no durable consumer may be left: %v", name, err)
		}
	}
}
