package everonce_test

import (
	"context"
	"testing"

	"github.com/everonce/everonce"
)

// A key that is in a batch twice has two values: who changes one, a slice here, does not change the other. What is recorded is replayed to both,
// by a receiver too that would not record as much.
func TestBatchSecondHasAValueOfItsOwn(t *testing.T) {
	batches(t, everonce.Options{}, func(b *batchTest) {
		small := newTxReceiver(b, b.s, &everonce.Options{MaxResult: 1})
		for _, c := range []struct {
			receiver *everonce.TxReceiver[*mapTx]
			first    everonce.Outcome
		}{{b.x, everonce.Executed}, {b.x, everonce.Replayed}, {small, everonce.Replayed}} {
			res, err := everonce.TransactBatch(context.Background(), c.receiver, items("a", "b", "a", "a"), everonce.EachItem(func(context.Context, *mapTx, int) ([]string, error) {
				return []string{"as it was"}, nil
			}))
			checkErr(b, err, nil)
			checkOutcome(b, res[0].Result, res[0].Err, c.first, nil)
			for _, i := range []int{0, 2, 3} {
				if i > 0 {
					checkOutcome(b, res[i].Result, res[i].Err, everonce.Replayed, nil)
				}
				if v := res[i].Value; len(v) != 1 || v[0] != "as it was" {
					b.Errorf("item %d, where the first is %v: %v", i, c.first, v)
				} else {
					v[0] = "changed"
				}
			}
		}
	})
}
