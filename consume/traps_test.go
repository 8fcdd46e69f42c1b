package consume_test

import (
	"context"
	"errors"
	"fmt"
	"hash/adler32"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/oncetest"
)

// Traps that peers fell into, each with the test of that name. docs/reference/proofs.md lists them.

// recordFirst is a deduplicator as peers have it: it records the key, and then calls the handler.
type recordFirst struct {
	mu   sync.Mutex
	seen map[string]bool
}

func (d *recordFirst) handle(m *consume.Message, handler func() error) error {
	d.mu.Lock()
	known := d.seen[m.ID]
	d.seen[m.ID] = true
	d.mu.Unlock()
	if known {
		return nil
	}
	return handler()
}

// Trap: a deduplicator that records the key before the handler takes the retry of a failed message for a duplicate, and
// it is acknowledged unhandled. Here a message that failed, in whatever way, is never acknowledged before it was handled; the
// deduplicator loses it in the same test.
func TestTrapTheKeyIsNotRecordedBeforeTheHandler(t *testing.T) {
	const n = 20
	bodies := make([]*consume.Message, n)
	for i := range bodies {
		bodies[i] = message(fmt.Sprint("m-", i)).m
	}
	// Each message fails at its first handling: by an error, or by a panic.
	failing := func(b *bank, failed *sync.Map, m *consume.Message) error {
		if _, again := failed.LoadOrStore(m.ID, true); !again {
			if m.ID == "m-7" {
				panic("no")
			}
			return everonce.NotDone(errors.New("the bank is closed"))
		}
		return b.book(context.Background(), m.ID)
	}
	for name, tc := range map[string]struct {
		consumer func(t *testing.T, b *bank, failed *sync.Map) *consume.Consumer
		handled  int
	}{
		"guarded": {func(t *testing.T, b *bank, failed *sync.Map) *consume.Consumer {
			return rigged(t, func(_ context.Context, m *consume.Message, _ order) error { return failing(b, failed, m) }, func(s *consume.Spec[order]) {
				s.Policy = everonce.Reexecute
			}).c
		}, n},
		"transactional": {func(t *testing.T, b *bank, failed *sync.Map) *consume.Consumer {
			return booking(t, newLedger(), func(s *txSpec) {
				s.Handle = func(_ context.Context, _ *ledgerTx, m *consume.Message, _ order) error { return failing(b, failed, m) }
			})
		}, n},
		"recorded before the handler": {func(t *testing.T, b *bank, failed *sync.Map) *consume.Consumer {
			d := &recordFirst{seen: map[string]bool{}}
			return natural(t, func(_ context.Context, m *consume.Message, _ order) (bool, error) {
				return true, d.handle(m, func() error { return failing(b, failed, m) })
			})
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, failed := &bank{booked: map[string]int{}}, &sync.Map{}
				told := oncetest.RunBroker(t, tc.consumer(t, b, failed), bodies, &oncetest.BrokerOptions{Workers: &consume.Workers{Log: quiet}})
				if len(b.booked) != tc.handled || len(told.Dead) != 0 {
					t.Errorf("%d of %d were handled, and %d are dead letters; want %d", len(b.booked), n, len(told.Dead), tc.handled)
				}
				for id, times := range b.booked {
					if times != 1 {
						t.Errorf("%s was handled %d times", id, times)
					}
				}
			})
		})
	}
}

// Trap: a 32-bit checksum confuses orders: Adler-32 nearly all small JSON bodies, others some of many. The content's
// hash has 256 bits, and confuses none of these.
func TestTrapSmallBodiesDoNotCollide(t *testing.T) {
	const n = 20_000
	rng := rand.New(rand.NewPCG(1, 1)) //nolint:gosec // any numbers
	bodies, sums, keys := map[string]bool{}, map[uint32]bool{}, map[string]bool{}
	for len(bodies) < n {
		body := fmt.Sprintf(`{"order":%d,"cents":%d}`, rng.IntN(10_000), rng.IntN(10_000))
		if bodies[body] {
			continue
		}
		bodies[body] = true
		sums[adler32.Checksum([]byte(body))] = true
		k, err := consume.ContentHash()(&consume.Message{Body: []byte(body)})
		if err != nil {
			t.Fatal(err)
		}
		keys[k] = true
	}
	if len(keys) != n {
		t.Errorf("%d keys of %d bodies", len(keys), n)
	}
	if len(sums) > n/2 {
		t.Errorf("Adler-32 tells %d of %d apart: this test is blind", len(sums), n)
	}
}

// Trap: two batches that claim the same keys in different orders deadlock. Whatever the order of the messages, a batch
// claims in the order of the keys' hashes.
func TestTrapBatchesClaimInOneOrder(t *testing.T) {
	var orders [][]everonce.RecordID
	for range 5 {
		l := &orderedLedger{ledger: newLedger()}
		recv, err := everonce.NewTxReceiver[*ledgerTx](l, nil)
		if err != nil {
			t.Fatal(err)
		}
		c, err := consume.NewTx(recv, txSpec{
			Consumer: "billing", Key: consume.ProducerID(),
			Handle: func(_ context.Context, tx *ledgerTx, m *consume.Message, _ order) error { return tx.Add(m.ID) },
		})
		if err != nil {
			t.Fatal(err)
		}
		ids := []string{"a", "b", "c", "d", "e", "f", "g"}
		rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		c.HandleBatch(t.Context(), messages(ids...))
		orders = append(orders, l.claims)
	}
	for _, claims := range orders {
		if len(claims) != 7 || !slices.Equal(claims, orders[0]) || !slices.IsSortedFunc(claims, func(a, b everonce.RecordID) int { return slices.Compare(a[:], b[:]) }) {
			t.Errorf("claimed as %v, and as %v", orders[0], claims)
		}
	}
}

// orderedLedger notes the order of its claims.
type orderedLedger struct {
	*ledger
	claims []everonce.RecordID
}

func (l *orderedLedger) Begin(ctx context.Context, req driver.BeginRequest) (driver.TxHandle[*ledgerTx], driver.ClaimResult, error) {
	h, res, err := l.ledger.Begin(ctx, req)
	if req.Claim != nil {
		l.claims = append(l.claims, req.Claim.ID)
	}
	if h != nil {
		h = orderedHandle{h, l}
	}
	return h, res, err
}

type orderedHandle struct {
	driver.TxHandle[*ledgerTx]
	l *orderedLedger
}

func (h orderedHandle) Claim(ctx context.Context, req driver.ClaimRequest) (driver.ClaimResult, error) {
	h.l.claims = append(h.l.claims, req.ID)
	return h.TxHandle.Claim(ctx, req)
}

// Trap: a failing message fails its whole batch: the neighbours are retried, and become dead letters, though nothing
// is wrong with them.
func TestTrapAPoisonedBatchIsNotPoisonForItsNeighbours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		c := booking(t, l, func(s *txSpec) {
			s.Retry.Limit = 2
			s.Handle = func(_ context.Context, tx *ledgerTx, m *consume.Message, _ order) error {
				if err := tx.Add(m.ID); err != nil || m.ID != "poison" {
					return err
				}
				return errors.New("no")
			}
		})
		ms := append(messages("poison"), messages("a", "b", "c", "d", "e", "f", "g")...)
		told := oncetest.RunBroker(t, c, ms, &oncetest.BrokerOptions{Workers: &consume.Workers{Concurrency: 2, Batch: 4, Log: quiet}})
		for _, m := range ms[1:] {
			if n := l.row(m.ID); n != 1 {
				t.Errorf("%s was booked %d times", m.ID, n)
			}
		}
		for _, d := range told.Dead {
			if d.Message.ID != "poison" || d.Death.Reason != consume.Exhausted {
				t.Errorf("%s is a dead letter: %s", d.Message.ID, d.Death.Reason)
			}
		}
		if l.row("poison") != 0 || len(told.Dead) == 0 {
			t.Errorf("the poison was booked %d times, and is %d dead letters", l.row("poison"), len(told.Dead))
		}
	})
}
