package everonce_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

// One line per operation, with the hash of its key: what a person may have to look at is a warning.
func ExampleLogObserver() {
	ctx := context.Background()
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "took" {
				return slog.Attr{} // so that the example prints the same every time
			}
			return a
		},
	}))
	r, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, &everonce.Options{Observer: everonce.LogObserver(log)})
	if err != nil {
		panic(err)
	}
	key := everonce.Key{Scope: "charges", ID: "order-7"}
	charge := func(context.Context, *everonce.Attempt) (string, error) { return "receipt-1", nil }
	for _, amount := range []int{1250, 1250, 9999} {
		_, _ = everonce.Do(ctx, r, key, charge, everonce.FingerprintOf(amount))
	}
	// Output:
	// level=DEBUG msg="everonce do" key=4d3a1f55da85094c scope=charges outcome=executed attempt=1
	// level=DEBUG msg="everonce do" key=4d3a1f55da85094c scope=charges outcome=replayed
	// level=WARN msg="everonce do" key=4d3a1f55da85094c scope=charges outcome=mismatch error="everonce: key reused with a different request (key 4d3a1f55da85094c)"
}

// counts counts effects: what was executed, and is not provisional.
type counts map[everonce.Scope]int

func (counts) Start(ctx context.Context, _ everonce.Op) context.Context { return ctx }

func (c counts) End(_ context.Context, ev everonce.Event) {
	if ev.Outcome == everonce.Executed && !ev.Provisional {
		c[ev.Scope]++ // under a lock, or by a metric that may be used concurrently
	}
}

// A log and a counter at once.
func ExampleJoinObservers() {
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "took" {
				return slog.Attr{}
			}
			return a
		},
	}))
	effects := counts{}
	r, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, &everonce.Options{
		Observer: everonce.JoinObservers(everonce.LogObserver(log), effects),
	})
	if err != nil {
		panic(err)
	}
	key := everonce.Key{Scope: "charges", ID: "order-7"}
	charge := func(context.Context, *everonce.Attempt) (string, error) { return "receipt-1", nil }
	for _, amount := range []int{1250, 1250, 9999} {
		_, _ = everonce.Do(context.Background(), r, key, charge, everonce.FingerprintOf(amount))
	}
	fmt.Println("effects:", effects["charges"])
	// Output:
	// level=WARN msg="everonce do" key=4d3a1f55da85094c scope=charges outcome=mismatch error="everonce: key reused with a different request (key 4d3a1f55da85094c)"
	// effects: 1
}
