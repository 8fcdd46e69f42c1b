package sqlitestore_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/sqlitestore"
)

const callers = 64

// callersAtOnce lets 64 callers share b.N calls.
func callersAtOnce(b *testing.B, call func(n int64)) {
	b.Helper()
	var next atomic.Int64
	done := make(chan struct{})
	b.ReportAllocs()
	b.ResetTimer()
	for range callers {
		go func() {
			for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
				call(n)
			}
			done <- struct{}{}
		}()
	}
	for range callers {
		<-done
	}
}

func BenchmarkDo(b *testing.B) {
	for _, limit := range []int{256, 1} {
		b.Run("group="+strconv.Itoa(limit), func(b *testing.B) {
			s := open(b, filepath.Join(b.TempDir(), "bench.db"), &sqlitestore.Options{GroupLimit: limit})
			r, err := everonce.NewReceiver(s, everonce.Refuse, nil)
			if err != nil {
				b.Fatal(err)
			}
			ctx := context.Background()
			callersAtOnce(b, func(n int64) {
				key := everonce.Key{Scope: "bench", ID: fmt.Sprint("order-", n)}
				if _, err := everonce.Do(ctx, r, key, func(context.Context, *everonce.Attempt) (int64, error) { return n, nil }); err != nil {
					b.Error(err)
				}
			})
			b.ReportMetric(float64(2*b.N)/float64(s.Commits()), "writes/commit")
		})
	}
}

func BenchmarkClaimComplete(b *testing.B) {
	for _, limit := range []int{256, 1} {
		b.Run("group="+strconv.Itoa(limit), func(b *testing.B) {
			s := open(b, filepath.Join(b.TempDir(), "bench.db"), &sqlitestore.Options{GroupLimit: limit})
			ctx := context.Background()
			callersAtOnce(b, func(n int64) {
				key := everonce.Key{Scope: "bench", ID: fmt.Sprint("order-", n)}
				claim, err := s.Claim(ctx, driver.ClaimRequest{
					ID: key.RecordID(), Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), Owner: "bench", Lease: 30 * time.Second,
				})
				if err != nil || claim.Decision != driver.DecideClaimed {
					b.Errorf("%v, %v", claim.Decision, err)
					return
				}
				if _, err := s.Complete(ctx, driver.CompleteRequest{
					ID: key.RecordID(), Token: claim.Record.Token, Nonce: claim.Record.Nonce, Lifetime: everonce.ForWeb(),
					Result: driver.SavedResult{Kind: driver.ResultValue, Codec: "raw", Data: []byte("done")},
				}); err != nil {
					b.Error(err)
				}
			})
			b.ReportMetric(float64(2*b.N)/float64(s.Commits()), "writes/commit")
		})
	}
}
