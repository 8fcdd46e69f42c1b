package pgxstore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// The room of a record with a result of 200 bytes is what docs/how-to/millions-of-records.md tells those who size a
// disk by it, and so is what a UUID as the ID and a fingerprint add.
func TestTheRoomOfARecord(t *testing.T) {
	t.Parallel()
	const keys = 300
	value := strings.Repeat("x", 200)
	for name, c := range map[string]struct {
		id      string
		printed bool
		want    int64
	}{
		"a short ID":               {"order-%d", false, 480},
		"a UUID and a fingerprint": {"8e03978e-40d5-43dd-bc93-%012d", true, 600},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newPgx(t, setup{})
			r, err := everonce.NewTxReceiver(h.store, &everonce.Options{Codec: everonce.Raw(), Owner: "shop-7f4d:12345"})
			noErr(t, err)
			for i := range keys {
				var opts []everonce.CallOption
				if c.printed {
					opts = append(opts, everonce.FingerprintOf(i))
				}
				key := everonce.Key{Scope: driver.ScopeOf(fmt.Sprint("tenant-", i), "charge"), ID: fmt.Sprintf(c.id, i)}
				_, err := everonce.Transact(t.Context(), r, key, func(context.Context, pgx.Tx) (string, error) { return value, nil }, opts...)
				noErr(t, err)
			}
			if got := number(t, "SELECT pg_relation_size('"+h.record()+"')") / keys; got < c.want*9/10 || got > c.want*11/10 {
				t.Errorf("a record takes %d bytes; the page says %d", got, c.want)
			}
		})
	}
}
