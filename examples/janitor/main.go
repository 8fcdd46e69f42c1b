// Command janitor shows the life of a finished operation: its result is replayed, then only remembered,
// then forgotten. The clock is turned by hand.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"sync/atomic"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/janitor"
	"github.com/everonce/everonce/store/memstore"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer) error {
	const day = 24 * time.Hour
	var passed atomic.Int64
	start := time.Now()
	store := memstore.New(&memstore.Options{Now: func() time.Time { return start.Add(time.Duration(passed.Load())) }})

	receiver, err := everonce.NewReceiver(store, everonce.Refuse, &everonce.Options{
		Lifetime: everonce.Lifetime{Retention: 7 * day, Remember: 30 * day},
	})
	if err != nil {
		return err
	}
	deliver := func() {
		key := everonce.Key{Scope: "shop", ID: "order-7"}
		res, err := everonce.Do(ctx, receiver, key, func(context.Context, *everonce.Attempt) (string, error) {
			return "receipt-1", nil
		}, everonce.WithSummary(func(receipt string) []byte { return []byte("paid, " + receipt) }))
		fmt.Fprintf(out, "day %d: %v %s", time.Duration(passed.Load())/day, res.Outcome, res.Value)
		if e, ok := errors.AsType[*everonce.Error](err); ok {
			fmt.Fprintf(out, "(%s)", e.Summary)
		}
		fmt.Fprintln(out)
	}

	removed := make(chan janitor.Result, 1)
	cleaner, err := janitor.New(store, &janitor.Options{
		Every: 10 * time.Millisecond,
		Report: func(res janitor.Result, err error) {
			if err != nil {
				log.Print(err)
			}
			if res.Results+res.Records > 0 {
				removed <- res
			}
		},
	})
	if err != nil {
		return err
	}
	// The janitor stops with its context. A service passes the context that ends at shutdown.
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	stopped := make(chan error, 1)
	go func() { stopped <- cleaner.Run(ctx) }()
	later := func(days int) {
		passed.Add(int64(time.Duration(days) * day))
		res := <-removed
		fmt.Fprintf(out, "day %d: the janitor removed %d results, %d records\n", time.Duration(passed.Load())/day, res.Results, res.Records)
	}
	deliver()
	deliver()
	later(7)
	deliver()
	later(30)
	deliver()
	stop()
	return <-stopped
}
