package replication_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce/internal/testing/testserver"
	"github.com/everonce/everonce/outbox"
)

// BenchmarkWord measures the time from the beginning of a commit until word of it comes, and what it costs to announce.
func BenchmarkWord(b *testing.B) {
	server := testserver.Start(b, "postgres")
	measure := func(b *testing.B, d *database, heard func()) {
		var took []time.Duration
		for b.Loop() {
			tx := d.begin(b)
			began := time.Now()
			if err := tx.Commit(b.Context()); err != nil {
				b.Fatal(err)
			}
			heard()
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds()), "µs/p50")
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "µs/p99")
	}
	b.Run("notify", func(b *testing.B) {
		d := newDatabase(b, server.URL)
		conn, err := pgx.ConnectConfig(b.Context(), d.pool.Config().ConnConfig)
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close(context.Background())
		if _, err := conn.Exec(b.Context(), "LISTEN word"); err != nil {
			b.Fatal(err)
		}
		d.must(b, "CREATE FUNCTION announce() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NOTIFY word; RETURN NULL; END $$")
		d.must(b, "CREATE TRIGGER announce AFTER INSERT ON everonce_outbox FOR EACH STATEMENT EXECUTE FUNCTION announce()")
		measure(b, d, func() {
			if _, err := conn.WaitForNotification(b.Context()); err != nil {
				b.Fatal(err)
			}
		})
	})
	b.Run("replication", func(b *testing.B) {
		d := newDatabase(b, server.URL)
		e := d.listening(b, nil).ready()
		measure(b, d, func() { e.wake("a commit") })
	})
	for _, none := range []bool{false, true} {
		b.Run(fmt.Sprintf("publish/none=%v", none), func(b *testing.B) {
			d := newDatabase(b, server.URL)
			box := d.outbox(b, &outbox.Options{NoAnnounce: none})
			b.SetParallelism(8)
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					err := d.receiver.InTx(context.Background(), func(ctx context.Context, tx pgx.Tx) error {
						return box.Publish(ctx, tx, outbox.Event{Topic: "orders"})
					})
					if err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
