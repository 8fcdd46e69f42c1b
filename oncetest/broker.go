package oncetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
)

// AnswerOfVerdict returns the answer to a delivery that [consume.Consumer.Handle] has handled: its outcome, or
// [everonce.Invalid] for a message that failed before its key or payload was read. An acknowledgement says "done"
// to a broker, so an acknowledged message that was not done is [everonce.Executed] here, and a test finds that it
// has no effect. The part that must be equal for a duplicate is what the broker does with it, with the reason if
// that is a dead letter.
func AnswerOfVerdict(v consume.Decision) Answer {
	a := Answer{Outcome: v.Outcome, Result: v.Disposition.String(), RetryAfter: v.After, Err: v.Err}
	switch {
	case v.Disposition == consume.SetAside:
		a.Result = v.Disposition.String() + ": " + string(v.Death.Reason)
	case v.Disposition == consume.Ack && !a.isDone():
		a.Outcome = everonce.Executed
	}
	if a.Outcome == 0 {
		a.Outcome = everonce.Invalid
	}
	return a
}

// BrokerOptions are the options of [RunBroker]. The zero value of each field is its default.
type BrokerOptions struct {
	// Copies is how often the producer sends each message, at most. Default 3.
	Copies int
	// Lost is the chance (0 to 1) that an answer of the consumer is lost. Default 0.2.
	Lost float64
	// Workers are the consumer's workers. Default: as in [consume.Consumer.Serve], with pauses of milliseconds.
	Workers *consume.Workers
	// Seed determines the copies, the order and what is lost, but not what workers do at the same time. Default: the
	// environment's EVERONCE_SEED, else a new one.
	Seed uint64
}

// Delivered is what became of the messages given to [RunBroker].
type Delivered struct {
	// Deliveries is how many deliveries there were, Copies how many messages the producer sent again, and Lost how
	// many answers were lost: after each of those the message was delivered again.
	Deliveries, Copies, Lost int
	// Dead are the dead letters, each as often as it was set aside.
	Dead []Dead
}

// Dead is a dead letter: a message, and what is said about it.
type Dead struct {
	Message *consume.Message
	Death   consume.Death
}

// RunBroker is a fake message broker in this process: it delivers messages to a consumer until each is acknowledged
// or a dead letter. It delivers at least once, and no better: the producer sends messages again, some copies at
// once and some much later; messages overtake each other; some of the consumer's answers are lost, so that an
// acknowledged message is delivered again, and a message that was given back or set aside exists twice. The first
// answer of each kind is always lost, so that every run proves something. Delays are those that the consumer asks
// for, up to 10 milliseconds.
//
// The caller counts in the ledger what was to happen once. A message that is neither done nor dead when tb's context
// ends is an error of the test.
func RunBroker(tb testing.TB, c *consume.Consumer, messages []*consume.Message, opts *BrokerOptions) Delivered {
	tb.Helper()
	var o BrokerOptions
	if opts != nil {
		o = *opts
	}
	if o.Copies < 0 || o.Lost < 0 || o.Lost >= 1 {
		tb.Fatal("oncetest: BrokerOptions.Copies is negative, or Lost is no chance below 1")
	}
	if o.Copies == 0 {
		o.Copies = 3
	}
	if o.Lost == 0 {
		o.Lost = 0.2
	}
	if o.Workers == nil {
		o.Workers = &consume.Workers{Backoff: consume.Backoff{Min: time.Millisecond, Max: 10 * time.Millisecond}}
	}
	if o.Seed == 0 {
		o.Seed = seedFrom(tb)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("the broker's seed: %s=%d", SeedVariable, o.Seed)
		}
	})
	b := &broker{lost: o.Lost, rng: rand.New(rand.NewPCG(o.Seed, 2)), first: map[string]bool{}, wake: make(chan struct{}, 1)} //nolint:gosec // chance is what is wanted
	b.send(messages, o.Copies)
	in := make(chan consume.Delivery)
	var feeding sync.WaitGroup
	feeding.Go(func() {
		defer close(in)
		b.feed(tb.Context(), in)
	})
	if err := c.Serve(tb.Context(), in, o.Workers); err != nil {
		tb.Fatalf("oncetest: %v", err)
	}
	feeding.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open > 0 {
		tb.Errorf("oncetest: %d messages are neither done nor dead letters: %v", b.open, context.Cause(tb.Context()))
	}
	return b.report
}

// longestDelay bounds how long the broker keeps back what is to come later: time is real for those who test with a
// database.
const longestDelay = 10 * time.Millisecond

// broker is one run of RunBroker.
type broker struct {
	lost float64
	wake chan struct{} // there is something to deliver, or nothing more to come

	mu     sync.Mutex
	rng    *rand.Rand
	queue  []*consume.Message
	open   int             // messages that are neither done nor dead
	first  map[string]bool // kinds of answers of which one was lost
	nextID int
	report Delivered
}

// send is what the producer does: half of the copies follow the first at once, and the others come anywhere.
func (b *broker) send(messages []*consume.Message, copies int) {
	var groups [][]*consume.Message
	for i, m := range messages {
		n := 1 + b.rng.IntN(copies)
		if i == 0 {
			n = copies // otherwise there might be no copies at all
		}
		b.report.Copies += n - 1
		group := make([]*consume.Message, n)
		for k := range group {
			sent := *m
			b.nextID++
			sent.BrokerID, sent.Deliveries, sent.Redelivered = "b-"+strconv.Itoa(b.nextID), 0, false
			group[k] = &sent
		}
		if i%2 == 0 {
			groups = append(groups, group)
			continue
		}
		for _, sent := range group {
			groups = append(groups, []*consume.Message{sent})
		}
	}
	b.rng.Shuffle(len(groups), func(i, j int) { groups[i], groups[j] = groups[j], groups[i] })
	b.queue = slices.Concat(groups...)
	b.open = len(b.queue)
}

// feed hands out the queued messages until none is left or ctx ends.
func (b *broker) feed(ctx context.Context, in chan<- consume.Delivery) {
	for {
		m, left := b.next()
		if !left {
			return
		}
		if m == nil {
			select {
			case <-b.wake:
			case <-ctx.Done():
				return
			}
			continue
		}
		select {
		case in <- &brokered{b, m}:
		case <-ctx.Done():
			return
		}
	}
}

// next returns a message, or nil if none is due now. left is false if no more will come.
func (b *broker) next() (m *consume.Message, left bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) == 0 {
		return nil, b.open > 0
	}
	sent := *b.queue[0]
	b.queue = b.queue[1:]
	sent.Deliveries++
	sent.Redelivered = sent.Deliveries > 1
	b.report.Deliveries++
	return &sent, true
}

// put puts a message somewhere into the queue.
func (b *broker) put(m *consume.Message) {
	b.queue = slices.Insert(b.queue, b.rng.IntN(len(b.queue)+1), m)
	b.wakeFeed()
}

func (b *broker) wakeFeed() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// loses decides whether an answer is lost.
func (b *broker) loses(answer string) bool {
	if b.first[answer] && b.rng.Float64() >= b.lost {
		return false
	}
	b.first[answer] = true
	b.report.Lost++
	return true
}

// end ends a delivery; if its answer is lost, it is delivered again.
func (b *broker) end(m *consume.Message, answer string) error {
	if b.loses(answer) {
		b.put(m)
		return fmt.Errorf("oncetest: the connection was lost before %q: %w", answer, consume.ErrGone)
	}
	b.open--
	b.wakeFeed()
	return nil
}

// brokered is a delivery of the fake broker.
type brokered struct {
	b *broker
	m *consume.Message
}

func (d *brokered) Message() *consume.Message { return d.m }

func (d *brokered) Ack(context.Context) error {
	d.b.mu.Lock()
	defer d.b.mu.Unlock()
	return d.b.end(d.m, "ack")
}

// Retry publishes a copy for later, and acknowledges the original then, as brokers without delays are used.
func (d *brokered) Retry(_ context.Context, after time.Duration, counts bool) error {
	d.b.mu.Lock()
	defer d.b.mu.Unlock()
	again := *d.m
	again.Deliveries, again.Redelivered = 0, false
	if counts {
		again.Retries++
	}
	d.b.open++
	time.AfterFunc(min(after, longestDelay), func() {
		d.b.mu.Lock()
		defer d.b.mu.Unlock()
		d.b.put(&again)
	})
	return d.b.end(d.m, "retry")
}

func (d *brokered) SetAside(_ context.Context, letter consume.Death) error {
	d.b.mu.Lock()
	defer d.b.mu.Unlock()
	d.b.report.Dead = append(d.b.report.Dead, Dead{d.m, letter})
	return d.b.end(d.m, "set_aside")
}
