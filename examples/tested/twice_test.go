package tested

import (
	"context"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/oncetest"
	"github.com/everonce/everonce/store/sqlitestore"
)

// TestBookings is a test as a consumer has it, with every message delivered twice.
func TestBookings(t *testing.T) {
	w := newWorld(t)
	recv, err := everonce.NewTxReceiver(w.store, &everonce.Options{Classify: sqlitestore.Classify})
	if err != nil {
		t.Fatal(err)
	}
	service := &Service{Bank: Accounts{}, Tx: recv}
	handle := oncetest.TwiceFunc(t, func(ctx context.Context, p Payment) error {
		_, err := service.Pay(ctx, p)
		return err
	}, nil)

	for _, p := range []Payment{{"client-1", "a", 700}, {"client-1", "b", 300}, {"client-2", "a", 50}} {
		if err := handle(t.Context(), p); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
	for client, want := range map[string]int{"client-1": 999_000, "client-2": 999_950} {
		var cents int
		if err := w.store.DB().QueryRowContext(t.Context(), `SELECT cents FROM account WHERE client = ?`, client).Scan(&cents); err != nil || cents != want {
			t.Errorf("%s has %d (%v), want %d", client, cents, err, want)
		}
	}
}
