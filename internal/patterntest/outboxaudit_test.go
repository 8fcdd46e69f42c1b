package patterntest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/internal/sqlqueue"
	"github.com/everonce/everonce/outbox"
)

// An audit runs a schedule in which a bug shows, and returns the faults that it found. Each is run on the real code,
// where it must find nothing, and with a bug planted, where it must find something: [TestPlantedBugs].

// hung is how long a test waits for what must come about. It is no claim about how long that takes.
const hung = 3 * time.Minute

// inVain is how long an audit waits if a planted bug keeps something from coming about.
const inVain = 5 * time.Second

var errDidNotCome = errors.New("it did not come about")

// within waits until the condition holds, for as long as the context allows.
func within(ctx context.Context, what string, holds func() (bool, error)) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		if ok, err := holds(); err != nil || ok {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, errDidNotCome)
		}
	}
}

// arrivals is a destination that records the events it gets, and answers as the test says.
type arrivals struct {
	answer func(e *outbox.Event) error

	mu    sync.Mutex
	ids   []string
	count map[string]int
	last  map[string]int // by key: the number in the payload of the latest first arrival
	wrong error          // the first event that came before one that stands before it
}

func newArrivals() *arrivals {
	return &arrivals{count: make(map[string]int), last: make(map[string]int)}
}

// came notes an event. The payloads of a key are growing numbers.
func (a *arrivals) came(e *outbox.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ids = append(a.ids, e.ID)
	if a.count[e.ID]++; a.count[e.ID] > 1 || e.Key == "" {
		return
	}
	n, err := strconv.Atoi(string(e.Payload))
	if last, known := a.last[e.Topic+"/"+e.Key]; err != nil || known && n <= last {
		a.wrong = errors.Join(a.wrong, fmt.Errorf("of key %s %s came after %d", e.Key, e.Payload, last))
	}
	a.last[e.Topic+"/"+e.Key] = n
}

func (a *arrivals) publisher() outbox.Publisher {
	return outbox.One(2, func(_ context.Context, e *outbox.Event) error {
		if a.answer != nil {
			if err := a.answer(e); err != nil {
				return err
			}
		}
		a.came(e)
		return nil
	})
}

// distinct returns how many different events came, and how many came again; and an error if the order was wrong.
func (a *arrivals) distinct() (n, again int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.count), len(a.ids) - len(a.count), a.wrong
}

func (a *arrivals) has(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.count[id] > 0
}

// await waits until so many different events came.
func (a *arrivals) await(ctx context.Context, n int) error {
	return within(ctx, fmt.Sprint(n, " events"), func() (bool, error) {
		got, _, err := a.distinct()
		return got >= n, err
	})
}

// line makes n events of a key, numbered from 1.
func line(topic, key string, n int) []outbox.Event {
	events := make([]outbox.Event, n)
	for i := range events {
		events[i] = outbox.Event{ID: fmt.Sprint(topic, "-", key, "-", i+1), Topic: topic, Key: key, Payload: strconv.AppendInt(nil, int64(i+1), 10)}
	}
	return events
}

func (h *handle[Tx]) publish(t testing.TB, box *outbox.Outbox[Tx], events ...outbox.Event) {
	t.Helper()
	h.inTx(t, func(ctx context.Context, tx Tx) error { return box.Publish(ctx, tx, events...) })
}

// quick retries at once.
var quick = consume.RetryPolicy{Min: time.Millisecond, Max: time.Millisecond}

// auditOpenTransaction: a transaction stays open while later ones commit, and are published. Its own event, which has a
// lower number, is published when it commits. The relay looks for late rows each second, whatever its pauses are.
func auditOpenTransaction[Tx any](ctx context.Context, t *testing.T, h *handle[Tx]) error {
	box, to := newOutbox(t, h), newArrivals()
	relaying(t, box, to.publisher(), &outbox.RelayOptions{Poll: time.Hour})
	late, commit, rollback, err := h.begin(t.Context())
	if err != nil {
		return err
	}
	defer rollback() //nolint:errcheck // after the commit it does nothing
	if err := box.Publish(ctx, late, outbox.Event{ID: "late", Topic: "orders"}); err != nil {
		return err
	}
	for i := range 5 {
		h.publish(t, box, outbox.Event{ID: fmt.Sprint("early ", i), Topic: "orders"})
		if err := to.await(ctx, i+1); err != nil {
			return err
		}
	}
	if err := commit(); err != nil {
		return err
	}
	return to.await(ctx, 6)
}

// auditHeads: of one key two relays publish nothing before what stands before it, although the first event fails twice.
func auditHeads[Tx any](ctx context.Context, t *testing.T, h *handle[Tx]) error {
	box, to := newOutbox(t, h), newArrivals()
	var failed atomic.Int64
	to.answer = func(e *outbox.Event) error {
		if e.Key == "a" && string(e.Payload) == "1" && failed.Add(1) <= 2 {
			return errors.New("not now")
		}
		return nil
	}
	h.publish(t, box, append(line("orders", "a", 12), line("orders", "b", 12)...)...)
	for range 2 {
		relaying(t, box, to.publisher(), &outbox.RelayOptions{Batch: 5, Retry: quick})
	}
	return to.await(ctx, 24)
}

// auditNothingTwiceInHand: claims at the same time never have one row twice, nor two of one order key in different
// hands, and follow the order of the key.
func auditNothingTwiceInHand[Tx any](ctx context.Context, t *testing.T, h *handle[Tx]) error {
	box := newOutbox(t, h)
	const limit, keys, each = 9, 4, 12
	var events []outbox.Event
	for k := range keys {
		events = append(events, line("orders", fmt.Sprint("k", k), each)...)
	}
	for i := range 30 {
		events = append(events, outbox.Event{ID: fmt.Sprint("free ", i), Topic: "orders"})
	}
	h.publish(t, box, events...)
	q := queueOf(t, h)
	var mu sync.Mutex
	hand := map[string]int64{} // by row or order key: the token of the claim
	ended := map[string]int64{}
	done := 0
	take := func(rows []sqlqueue.Row, token int64) error {
		mu.Lock()
		defer mu.Unlock()
		for _, r := range rows {
			name := r.OrderKey
			if name == "" {
				name = r.ID
			}
			if by, taken := hand[name]; taken && by != token {
				return fmt.Errorf("%s is in two hands", r.ID)
			}
			if r.OrderKey != "" && r.Seq < ended[r.OrderKey] {
				return fmt.Errorf("%s was claimed after what stands behind it", r.ID)
			}
			hand[name] = token
		}
		return nil
	}
	worker := func() error {
		for turn := 0; ctx.Err() == nil; turn++ {
			rows, token, err := sqlqueue.Claim(ctx, q, sqlqueue.ClaimRequest{Limit: limit, Lease: time.Minute}, common)
			if err != nil {
				return err
			}
			if len(rows) > limit {
				return fmt.Errorf("a claim of %d rows, where %d were asked for", len(rows), limit)
			}
			if err := take(rows, token); err != nil {
				return err
			}
			var ends []sqlqueue.End
			mu.Lock()
			for i, r := range rows { // of a claim the last is given back, each second time
				end := sqlqueue.End{Seq: r.Seq}
				if i == len(rows)-1 && turn%2 == 0 {
					end.How = sqlqueue.Release
				} else if ended[r.OrderKey], done = r.Seq, done+1; r.OrderKey == "" {
					delete(ended, "")
				}
				ends = append(ends, end)
				delete(hand, r.OrderKey)
				delete(hand, r.ID)
			}
			all := done == len(events)
			mu.Unlock()
			if lost, err := q.End(ctx, token, ends...); err != nil || lost > 0 {
				return errors.Join(fmt.Errorf("%d rows are in two hands", lost), err)
			}
			if all {
				return nil
			}
			if len(rows) == 0 {
				mu.Lock()
				all = done >= len(events)
				mu.Unlock()
				if all {
					return nil
				}
			}
		}
		return fmt.Errorf("%d of %d rows: %w", done, len(events), errDidNotCome)
	}
	const workers = 6
	errs := make(chan error, workers)
	for range workers {
		go func() { errs <- worker() }()
	}
	var err error
	for range workers {
		err = errors.Join(err, <-errs)
	}
	return err
}

// auditPausedRelay: a relay that was paused past its lease, with its publisher busy, publishes only the events that it
// had claimed, and marks no event that another relay has claimed meanwhile.
func auditPausedRelay[Tx any](ctx context.Context, t *testing.T, h *handle[Tx], bug func(name, text string) string) error {
	const lease = time.Hour
	var paused atomic.Bool
	first := tampered(t, h, &tampering{text: bug, around: func(ctx context.Context, what string, call func() error) error {
		switch {
		case what == "outbox_renew", what == "outbox_claim" && paused.Load():
			return errors.New("paused")
		case what == "outbox_claim_followers": // now it has claimed events
			paused.Store(true)
		}
		return call()
	}})
	box, to := newOutbox(t, h), newArrivals()
	h.publish(t, box, line("orders", "a", 5)...)

	// hands is a publisher that stops with its events until it is let go on.
	hands := func(stopped chan<- []outbox.Event, skipFailed <-chan struct{}) outbox.Publisher {
		return outbox.PublisherFunc(func(ctx context.Context, events []outbox.Event) []error {
			stopped <- events
			<-skipFailed
			return to.publisher().Publish(ctx, events)
		})
	}
	stoppedA, stoppedB := make(chan []outbox.Event, 10), make(chan []outbox.Event, 10)
	goOnA, goOnB := make(chan struct{}), make(chan struct{})
	var once sync.Once
	free := func() { once.Do(func() { close(goOnB) }) }
	defer free()
	told := make(chan outbox.Report, 100)
	boxA := newOutbox(t, first)
	stopA := relaying(t, boxA, hands(stoppedA, goOnA), &outbox.RelayOptions{Lease: lease, Batch: 3, NoListen: true, Observe: func(_ context.Context, _ *outbox.Event, v outbox.Report) { told <- v }})
	inHand := <-stoppedA
	h.must(t, "UPDATE everonce_outbox SET due_at = 0 WHERE token <> 0") // its lease has ended, and it does not know
	relaying(t, box, hands(stoppedB, goOnB), &outbox.RelayOptions{NoListen: true})
	var others []outbox.Event
	select {
	case others = <-stoppedB:
	case <-ctx.Done():
		return fmt.Errorf("the second relay: %w", errDidNotCome)
	}
	close(goOnA)
	for range inHand {
		select {
		case <-told:
		case <-ctx.Done():
			return fmt.Errorf("the first relay's end: %w", errDidNotCome)
		}
	}
	stopA()
	for _, e := range others {
		if h.number(t, "SELECT count(*) FROM everonce_outbox WHERE id = $1 AND state = 0 AND token <> 0", e.ID) != 1 {
			return fmt.Errorf("the paused relay has marked an event that another one has claimed: %s", e.ID)
		}
	}
	free()
	if err := to.await(ctx, 5); err != nil {
		return err
	}
	h.settled(t, box)
	if _, again, err := to.distinct(); err != nil || again > len(inHand) {
		return errors.Join(fmt.Errorf("%d events came again, of %d that were claimed", again, len(inHand)), err)
	}
	return nil
}

// auditBudget: an event that never succeeds is set aside after its budget, and was tried that often.
func auditBudget[Tx any](ctx context.Context, t *testing.T, h *handle[Tx]) error {
	box, to := newOutbox(t, h), newArrivals()
	var tries atomic.Int64
	to.answer = func(*outbox.Event) error { tries.Add(1); return errors.New("no") }
	h.publish(t, box, outbox.Event{Topic: "orders", Key: "a"})
	retry := quick
	retry.Limit = 2
	relaying(t, box, to.publisher(), &outbox.RelayOptions{Retry: retry})
	return within(ctx, "an event that is set aside", func() (bool, error) {
		if s, err := box.Backlog().Stats(ctx); err != nil || s.Blocked == 0 {
			if tries.Load() > 3 {
				err = errors.Join(err, fmt.Errorf("it was tried %d times, with a budget of 3", tries.Load()))
			}
			return false, err
		}
		if n := tries.Load(); n != 3 {
			return false, fmt.Errorf("it was tried %d times, with a budget of 3", n)
		}
		return true, nil
	})
}

// queueOf is the outbox's queue, as claims see it.
func queueOf[Tx any](t testing.TB, h *handle[Tx]) *sqlqueue.Queue {
	t.Helper()
	return sqlqueue.New(h.sqldb(t), sqlqueue.Spec{Table: "outbox", Group: "topic", Lane: "topic"})
}

func common(r *sqlqueue.Row) (*sqlqueue.Row, []any) { return r, nil }
