package e2e

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/internal/testserver"
)

const (
	cutBlock        = 60 // messages that are sent for each cut; one in six of them twice
	cutConcurrency  = 8
	cutFirstPause   = 20 * time.Millisecond
	cutLongestPause = 320 * time.Millisecond // after five failures in a row
	// brokerPatience is longer than any broker waits here for a consumer.
	brokerPatience = 3500 * time.Millisecond
)

var cutRetry = consume.RetryPolicy{Min: 50 * time.Millisecond, Max: 500 * time.Millisecond}

// cutStream is a stream through one consumer, in this process, whose line to its store is ill-treated; or, where the
// spec has a line, that to its broker.
type cutStream struct {
	t    *testing.T
	ctx  context.Context //nolint:containedctx // the test's own end
	spec messageSpec
	way  string
	rng  *rand.Rand
	out  *publisher
	cuts []cut
	// cutFor is how long one of the broker lasts, at least.
	cutFor time.Duration

	mu       sync.Mutex
	changed  chan struct{}
	settled  map[int]bool
	outcomes map[everonce.Outcome]int
	handled  int // verdicts
	done     int // the ones among them that say that it took effect, now or earlier
	longest  time.Duration
	warnings int
	again    int // acknowledged deliveries beyond one for each sending
	charges  map[int]map[string]int

	at         int           // the message in whose handling the line is cut
	reached    chan struct{} // closed there
	skipFailed chan struct{} // closed by the test
}

func newCutStream(t *testing.T, kind, way string) *cutStream {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(cancel)
	name := "e2e_" + strconv.FormatUint(rand.Uint64(), 36)
	s := &cutStream{
		t: t, ctx: ctx, way: way, spec: messageSpec{Kind: kind, Broker: testserver.URL(t, brokerKinds[kind].server), Queues: name, Schema: name},
		rng: rand.New(rand.NewPCG(seedOf(t), 4)), changed: make(chan struct{}), settled: map[int]bool{}, outcomes: map[everonce.Outcome]int{},
		charges: map[int]map[string]int{}, at: -1, cuts: lineCuts, cutFor: brokerPatience,
	}
	s.out = &publisher{broker: s.spec.broker(), sent: map[string]map[int]int{way: {}}}
	s.spec.declare(t, []string{way})
	return s
}

func (s *cutStream) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// observe counts the verdicts.
func (s *cutStream) observe(_ context.Context, m *consume.Message, v consume.Decision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handled++
	s.outcomes[v.Outcome]++
	if v.Disposition == consume.Ack {
		s.done++
		if op, err := strconv.Atoi(m.ID[len("op-"):]); err == nil {
			s.settled[op] = true
		}
	}
	s.notify()
}

// warned counts the warnings of a consumer, and finds the longest pause.
type warned struct {
	slog.Handler
	s *cutStream
}

func (*warned) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

func (w *warned) Handle(_ context.Context, r slog.Record) error {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.s.warnings++
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "pause" {
			w.s.longest = max(w.s.longest, a.Value.Duration())
		}
		return true
	})
	w.s.notify()
	return nil
}

// charge is the gateway.
func (s *cutStream) charge(op int, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.charges[op] == nil {
		s.charges[op] = map[string]int{}
	}
	s.charges[op][key]++
}

// charged is how many keys were charged for each message.
func (s *cutStream) charged() map[int]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	effects := map[int]int{}
	for op, keys := range s.charges {
		effects[op] = len(keys)
	}
	return effects
}

// inHand holds one message until its line was cut.
func (s *cutStream) inHand(ctx context.Context, op int) error {
	s.mu.Lock()
	if op != s.at {
		s.mu.Unlock()
		return nil
	}
	s.at = -1
	reached, skipFailed := s.reached, s.skipFailed
	s.mu.Unlock()
	close(reached)
	select {
	case <-skipFailed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// until waits until what is asked for holds; s.mu is held then.
func (s *cutStream) until(what string, holds func() bool) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for !holds() {
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-s.ctx.Done():
		}
		s.mu.Lock()
		if s.ctx.Err() != nil {
			stacks := make([]byte, 1<<20)
			s.t.Logf("%s", stacks[:runtime.Stack(stacks, true)])
			s.t.Fatalf("waited for %s: %d messages settled; %v", what, len(s.settled), s.outcomes)
		}
	}
}

// run consumes through all the cuts, and drains.
func (s *cutStream) run(h *consume.Consumer, proxy *toxiproxy.Proxy) {
	s.t.Helper()
	drain := s.start(h)
	for i, broken := range s.cuts {
		s.through(i*cutBlock, broken, proxy)
	}
	sent := -s.out.unconfirmed
	for _, times := range s.out.sent[s.way] {
		sent += times
	}
	s.until("the last duplicate", func() bool { return s.done >= sent })
	s.untilEmpty()
	drain()
	for s.spec.Line != "" { // messages prefetched over a line that was cut are requeued when the broker notices the cut
		if left, err := s.spec.waiting(s.way); err == nil && len(left) == 0 {
			break
		}
		drain = s.start(h)
		s.untilEmpty()
		drain()
	}
	s.again = s.done - sent
	s.t.Logf("%d messages, %d of them came again, %d deliveries and attempts: %v", len(s.cuts)*cutBlock, s.again, s.handled, s.outcomes)
}

// start begins to consume, and returns what drains.
func (s *cutStream) start(h *consume.Consumer) (drain func()) {
	s.t.Helper()
	c, err := s.spec.broker().consumer(context.Background(), s.way, h, consume.Workers{
		Concurrency: cutConcurrency, Backoff: consume.Backoff{Min: cutFirstPause, Max: cutLongestPause}, SettleTimeout: time.Second,
		Log: slog.New(&warned{slog.DiscardHandler, s}),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(s.ctx)
	s.t.Cleanup(stop)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	return func() {
		stop()
		if err := <-ended; err != nil {
			s.t.Error(err)
		}
	}
}

// through sends a block of messages, and disturbs the line while one of them is being handled.
func (s *cutStream) through(begin int, broken cut, proxy *toxiproxy.Proxy) {
	s.t.Helper()
	s.mu.Lock()
	s.at = begin + 10 + s.rng.IntN(cutBlock/2)
	s.reached, s.skipFailed, s.longest, s.warnings = make(chan struct{}), make(chan struct{}), 0, 0
	reached, skipFailed := s.reached, s.skipFailed
	s.mu.Unlock()
	var ops []int
	for op := begin; op < begin+cutBlock; op++ {
		ops = append(ops, op)
		if op%6 == 0 {
			ops = append(ops, op)
		}
	}
	if err := s.out.publish(s.ctx, s.way, ops); err != nil {
		s.t.Fatal(err)
	}
	select {
	case <-reached:
	case <-s.ctx.Done():
		s.t.Fatalf("%s: the message in whose handling it is to happen does not come", broken.phase)
	}
	heal := broken.inflict(s.t, proxy)
	before := s.count()
	close(skipFailed)
	settled := func() {
		s.until(broken.phase+": the end of its messages", func() bool { return len(s.settled) == begin+cutBlock })
	}
	switch {
	case broken.heard:
		settled()
	case s.spec.Line != "":
		over := time.After(s.cutFor)
		s.until(broken.phase+": a warning", func() bool { return s.warnings > 0 })
		<-over
	default:
		s.until(broken.phase+": the longest pause", func() bool { return s.longest >= cutLongestPause })
		s.wantPaused(broken, before, s.count())
	}
	heal()
	settled()
}

// untilEmpty waits until the broker counts no unacknowledged message.
func (s *cutStream) untilEmpty() {
	s.t.Helper()
	for {
		left, err := s.spec.waiting(s.way)
		if err == nil && len(left) == 0 {
			return
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-s.ctx.Done():
			s.t.Fatalf("left in the queues: %v, %v", left, err)
		}
	}
}

// counts are the counts at one time.
type counts struct{ handled, done int }

func (s *cutStream) count() counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return counts{s.handled, s.done}
}

// wantPaused: the messages in progress were tried a few times, each after a pause that doubled, and no message was
// acknowledged except those whose acknowledgement was on its way.
func (s *cutStream) wantPaused(broken cut, before, after counts) {
	s.t.Helper()
	pauses := 1
	for p := cutFirstPause; p < cutLongestPause; p *= 2 {
		pauses++
	}
	attempts, done := after.handled-before.handled, after.done-before.done
	if most := cutConcurrency * (pauses + 2); attempts > most { // that there were some, the longest pause has shown
		s.t.Errorf("%s: %d attempts until the %dth pause, by %d workers: want at most %d", broken.phase, attempts, pauses, cutConcurrency, most)
	}
	if done > cutConcurrency {
		s.t.Errorf("%s: %d messages were acknowledged meanwhile, and %d can have been on their way", broken.phase, done, cutConcurrency)
	}
	s.t.Logf("%s: %d attempts until the %dth pause, %d acknowledged", broken.phase, attempts, pauses, done)
}

// wantOnce audits.
func (s *cutStream) wantOnce(effects map[int]int) {
	s.t.Helper()
	for op := range len(s.cuts) * cutBlock {
		if effects[op] != 1 {
			s.t.Errorf("message %d took effect %d times", op, effects[op])
		}
		delete(effects, op)
	}
	if len(effects) > 0 {
		s.t.Errorf("effects of messages that were never sent: %v", effects)
	}
	blind := s.outcomes[everonce.Replayed] == 0
	switch {
	case s.spec.Line == "":
		blind = blind || s.outcomes[everonce.StoreFailed] == 0
	case s.cutFor > 0 && s.spec.Kind != "sqs": // whose consumer recognises a message that comes again while it is being handled
		blind = blind || s.again == 0
	}
	if blind {
		s.t.Errorf("blind: %v, and %d came again", s.outcomes, s.again)
	}
	left, err := s.spec.waiting(s.way)
	if err != nil || len(left) > 0 {
		s.t.Errorf("left in the queues: %v, %v", left, err)
	}
}
