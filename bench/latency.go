package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce/outbox"
)

// latencySamples is how many events one round publishes, each when nothing has happened for a while.
const latencySamples = 20

// latency is the time from a commit to the publishing of its event, by a relay that has nothing else to do. Beside it,
// a connection that only hears of the commit.
type latency struct {
	b          *patternBench
	bare, ours []time.Duration
}

func (*latency) name() string { return "PostgreSQL, outbox, latency" }

func (l *latency) run(ctx context.Context, p pace) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	came := make(chan time.Time, 1)
	relay, err := l.b.box.Relay(outbox.PublisherFunc(func(context.Context, []outbox.Event) []error { came <- time.Now(); return nil }),
		&outbox.RelayOptions{Log: silent})
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(ctx) }()
	heard, err := l.listen(ctx)
	if err != nil {
		return err
	}
	for n := range int64(latencySamples * p.rounds) {
		pause := time.NewTimer(150*time.Millisecond + rand.N(100*time.Millisecond))
		select {
		case <-pause.C:
		case err := <-ended:
			return err
		}
		took, err := l.sample(ctx, came, func(tx pgx.Tx) error { return l.b.box.Publish(ctx, tx, events(-n-1, 1, 0)...) })
		if err != nil {
			return err
		}
		l.ours = append(l.ours, took)
		took, err = l.sample(ctx, heard, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO "+l.b.schema+`.bare (id, topic, order_key, type, content_type, headers, payload)
				VALUES (gen_random_uuid()::text, 'orders', '', '', '', '', '')`)
			if err == nil {
				_, err = tx.Exec(ctx, "NOTIFY "+l.b.schema)
			}
			return err
		})
		if err != nil {
			return err
		}
		l.bare = append(l.bare, took)
	}
	end()
	return <-ended
}

// listen notes when announcements of the bare way come.
func (l *latency) listen(ctx context.Context) (<-chan time.Time, error) {
	conn, err := l.b.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	own := conn.Hijack()
	if _, err := own.Exec(ctx, "LISTEN "+l.b.schema); err != nil {
		return nil, err
	}
	heard := make(chan time.Time, 1)
	go func() {
		defer own.Close(context.WithoutCancel(ctx)) //nolint:errcheck // no longer used
		for {
			if _, err := own.WaitForNotification(ctx); err != nil {
				return
			}
			heard <- time.Now()
		}
	}()
	return heard, nil
}

// sample returns the time from the sending of a commit until it was noticed.
func (l *latency) sample(ctx context.Context, noticed <-chan time.Time, write func(tx pgx.Tx) error) (time.Duration, error) {
	tx, err := l.b.pool.Begin(ctx)
	if err != nil {
		return 0, err
	}
	if err := write(tx); err != nil {
		return 0, err
	}
	sent := time.Now()
	if err := tx.Commit(ctx); err != nil {
		return 0, err
	}
	select {
	case at := <-noticed:
		return at.Sub(sent), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (l *latency) print() {
	format := "%-10s %-34s %-36s %10s %10s\n"
	fmt.Printf(format, "PostgreSQL", "outbox, an idle relay", "from a commit to", "p50", "p99")
	row := func(name string, d []time.Duration) {
		fmt.Printf(format, "", "", name, milliseconds(quantile(d, 0.5)), milliseconds(quantile(d, 0.99)))
	}
	row("bare: the notification", l.bare)
	row("ours: the publisher", l.ours)
	fmt.Println()
}

func (l *latency) promised() []target {
	return []target{{what: "relay, commit to publish, p99: ms", want: 10, atMost: true, measured: func() float64 { return quantile(l.ours, 0.99).Seconds() * 1000 }}}
}

func quantile(d []time.Duration, q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(d))[min(int(q*float64(len(d))), len(d)-1)]
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.1f ms", d.Seconds()*1000) }
