package everonce_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

// A report is large and soon out of date: its bytes are kept for an hour, and for a week it is known that
// it was sent. Afterwards the key is new.
func ExampleWithLifetime() {
	ctx := context.Background()
	now := time.Date(2026, time.March, 1, 9, 0, 0, 0, time.UTC)
	store := memstore.New(&memstore.Options{Now: func() time.Time { return now }}) // a clock that the example moves
	r, err := everonce.NewReceiver(store, everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}

	send := func() {
		res, err := everonce.Do(ctx, r, everonce.Key{Scope: "reports", ID: "2026-02"},
			func(context.Context, *everonce.Attempt) (string, error) { return "all is well", nil },
			everonce.WithLifetime(everonce.Lifetime{Retention: time.Hour, Remember: 7 * 24 * time.Hour}))
		fmt.Println(now.Format("Jan 2 15:04"), res.Outcome, res.Value, errors.Is(err, everonce.ErrExpired))
	}
	send()
	now = now.Add(59 * time.Minute)
	send()
	now = now.Add(time.Minute)
	send()
	now = now.Add(7 * 24 * time.Hour)
	send()
	// Output:
	// Mar 1 09:00 executed all is well false
	// Mar 1 09:59 replayed all is well false
	// Mar 1 10:00 expired  true
	// Mar 8 10:00 executed all is well false
}

// The presets are for the time in which a duplicate may come: from clients, from a queue, from an audit.
func ExampleForFinance() {
	for _, l := range []everonce.Lifetime{everonce.ForWeb(), everonce.ForQueue(), everonce.ForFinance()} {
		const day = 24 * time.Hour
		fmt.Printf("answered again for %d days, protected for %d\n", l.Retention/day, l.Total()/day)
	}
	r, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, &everonce.Options{Lifetime: everonce.ForFinance()})
	fmt.Println(r != nil, err)
	// Output:
	// answered again for 1 days, protected for 2
	// answered again for 7 days, protected for 14
	// answered again for 90 days, protected for 365
	// true <nil>
}
