package enginetest

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// A key that is in a batch twice has two values: changing one, a slice here, does not change the other. The
// recorded value is replayed to both, even if the receiver itself would not record one so large.
func TestBatchSecondHasASeparateValue(t *testing.T) {
	batches(t, everonce.Options{}, func(b *batchTest) {
		small := newTxReceiver(b, b.s, &everonce.Options{MaxResult: 1})
		for _, c := range []struct {
			receiver *everonce.TxReceiver[*mapTx]
			first    everonce.Outcome
		}{{b.x, everonce.Executed}, {b.x, everonce.Replayed}, {small, everonce.Replayed}} {
			res, err := everonce.TransactBatch(context.Background(), c.receiver, items("a", "b", "a", "a"), everonce.EachItem(func(context.Context, *mapTx, int) ([]string, error) {
				return []string{"unchanged"}, nil
			}))
			checkErr(b, err, nil)
			checkOutcome(b, res[0].Result, res[0].Err, c.first, nil)
			for _, i := range []int{0, 2, 3} {
				if i > 0 {
					checkOutcome(b, res[i].Result, res[i].Err, everonce.Replayed, nil)
				}
				if v := res[i].Value; len(v) != 1 || v[0] != "unchanged" {
					b.Errorf("item %d, where the first is %v: %v", i, c.first, v)
				} else {
					v[0] = "changed"
				}
			}
		}
	})
}

// oneWay is a codec that cannot read what it has written.
type oneWay struct{}

func (oneWay) Name() string                  { return "oneway" }
func (oneWay) Marshal(v any) ([]byte, error) { return json.Marshal(v) }
func (oneWay) Unmarshal([]byte, any) error   { return errors.New("this cannot be read") }

// A value that another codec has recorded is replayed to both items of a key that is in a batch twice, although the
// receiver's codec cannot read back its own.
func TestBatchSecondOfAnotherCodecsValue(t *testing.T) {
	batches(t, everonce.Options{}, func(b *batchTest) {
		var store driver.TxStore[*mapTx] = b.s
		b.transact(context.Background(), items("a"))
		for range 2 {
			x := newTxReceiver(b, store, &everonce.Options{Codec: oneWay{}})
			res, err := everonce.TransactBatch(context.Background(), x, items("a", "b", "a"), everonce.EachItem(func(context.Context, *mapTx, int) (int, error) { return 7, nil }))
			checkErr(b, err, nil)
			for _, i := range []int{0, 2} {
				checkOutcome(b, res[i].Result, res[i].Err, everonce.Replayed, nil)
				checkEqual(b, "value", res[i].Value, 1)
			}
			store = batchStore{b.s}
		}
	})
}

// Options.StoreTimeout bounds one store call, and not all claims of a batch that have one each.
func TestBatchClaimsOneByOneForLongerThanAStoreCallMayTake(t *testing.T) {
	batches(t, everonce.Options{StoreTimeout: 5 * time.Second}, func(b *batchTest) {
		slow := func(ctx context.Context, call func() error) error {
			select {
			case <-time.After(time.Second):
				return call()
			case <-ctx.Done():
				return cutShort(ctx)
			}
		}
		b.s.on("Begin", 0, slow)
		b.s.on("tx.Claim", 0, slow)
		b.s.on("tx.ClaimAll", 0, slow)
		res := b.transact(context.Background(), items("a", "b", "c", "d", "e", "f", "g", "h"))
		for _, r := range res {
			checkOutcome(b, r.Result, r.Err, everonce.Executed, nil)
		}
	})
}
