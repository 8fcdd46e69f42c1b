package enginetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// A batch comes to what its operations come to one by one: the same outcomes, effects and records, whatever fails in
// it, and however it is cut.
func TestBatchEqualsItsOperationsOneByOne(t *testing.T) {
	ends := map[string]func(tx *mapTx) error{
		"well": nil, "fails": func(*mapTx) error { return errWork }, "violates": func(tx *mapTx) error { return tx.Violate() },
		"refused": func(*mapTx) error { return everonce.Permanent("declined", nil, []byte("detail")) },
		"invalid": func(*mapTx) error { return errors.Join(everonce.NotDone(errWork), errConstraint) },
	}
	rapid.Check(t, func(t *rapid.T) {
		type use struct{ name, end string }
		names := rapid.SliceOfN(rapid.StringMatching("[a-h]"), 1, 20).Draw(t, "names")
		endOf := map[string]string{}
		uses := make([]use, len(names))
		prints := make([]everonce.Fingerprint, len(names))
		for i, name := range names {
			if _, ok := endOf[name]; !ok {
				endOf[name] = rapid.SampledFrom([]string{"well", "well", "well", "fails", "violates", "refused", "invalid"}).Draw(t, "end")
			}
			uses[i] = use{name, endOf[name]}
			if rapid.IntRange(0, 5).Draw(t, "fingerprint") == 0 {
				prints[i] = everonce.FingerprintOf("another")
			} else {
				prints[i] = everonce.FingerprintOf("the same")
			}
		}
		done := rapid.SliceOfDistinct(rapid.StringMatching("[a-h]"), rapid.ID).Draw(t, "done before")
		whole := rapid.Bool().Draw(t, "the work does not say what failed")
		work := func(tx *mapTx, i int) (int, error) {
			n, err := tx.Add("row of "+uses[i].name, 1)
			if end := ends[uses[i].end]; err == nil && end != nil {
				err = end(tx)
			}
			return n, err
		}

		alone, together := newMapStore(), newMapStore()
		receiver := func(s driver.TxStore[*mapTx]) *everonce.TxReceiver[*mapTx] {
			x, err := everonce.NewTxReceiver(s, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range done {
				if _, err := everonce.Transact(context.Background(), x, keyOf(name), func(context.Context, *mapTx) (int, error) { return 7, nil }, everonce.FingerprintOf("the same")); err != nil {
					t.Fatal(err)
				}
			}
			return x
		}
		x, y := receiver(alone), receiver(batchStore{together})
		if rapid.Bool().Draw(t, "without the power") {
			y = receiver(together)
		}

		items := make([]everonce.BatchItem, len(uses))
		want := make([]string, len(uses))
		ended := map[string]everonce.Outcome{}
		first := map[string]int{}
		for i, u := range uses {
			items[i] = everonce.BatchItem{Key: keyOf(u.name), Fingerprint: prints[i]}
			if k, ok := first[u.name]; ok && ended[u.name] == everonce.Failed && prints[k] != prints[i] {
				want[i] = "in_progress 0" // the first has left no record to compare with: it is not tried in the same batch
				continue
			}
			res, err := everonce.Transact(context.Background(), x, keyOf(u.name), func(_ context.Context, tx *mapTx) (int, error) { return work(tx, i) }, prints[i])
			if err == nil && res.Outcome != everonce.Executed && res.Outcome != everonce.Replayed {
				t.Fatal(res.Outcome)
			}
			if _, ok := first[u.name]; !ok {
				first[u.name], ended[u.name] = i, res.Outcome
			}
			if k := first[u.name]; k != i && ended[u.name] == everonce.Mismatch {
				continue // as the first: see below
			}
			want[i] = fmt.Sprint(res.Outcome, res.Value)
		}
		results, err := everonce.TransactBatch(context.Background(), y, items, func(ctx context.Context, tx *mapTx, todo []int) ([]int, error) {
			values, err := everonce.EachItem(func(_ context.Context, tx *mapTx, i int) (int, error) { return work(tx, i) })(ctx, tx, todo)
			if err != nil && whole {
				err = errors.Join(errors.Unwrap(err))
			}
			return values, err
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, u := range uses {
			if got := fmt.Sprint(results[i].Outcome, results[i].Value); want[i] != "" && got != want[i] {
				t.Errorf("item %d (%s, %s): %s, want %s", i, u.name, u.end, got, want[i])
			}
			if a, b := alone.row("row of "+u.name), together.row("row of "+u.name); want[i] != "" && a != b {
				t.Errorf("%s: %d effects, want %d", u.name, b, a)
			}
			a, b := alone.record(keyOf(u.name)), together.record(keyOf(u.name))
			if want[i] != "" && (a.State != b.State || a.Attempt != b.Attempt || string(a.Result.Data) != string(b.Result.Data) || a.Fingerprint != b.Fingerprint) {
				t.Errorf("%s: the record is %v, %q, want %v, %q", u.name, b.State, b.Result.Data, a.State, a.Result.Data)
			}
		}
		if len(together.open)+len(together.locks) > 0 {
			t.Errorf("%d transactions and %d locks were left open", len(together.open), len(together.locks))
		}
	})
}
