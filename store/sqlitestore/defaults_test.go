package sqlitestore

import (
	"runtime"
	"testing"
	"time"
)

// Omitted options have the values that docs/reference/options.md states.
func TestDefaults(t *testing.T) {
	t.Parallel()
	o, err := (*Options)(nil).complete("payments.db")
	if err != nil {
		t.Fatal(err)
	}
	if o.TablePrefix != "everonce_" || o.BusyTimeout != 5*time.Second || o.Readers != max(4, runtime.GOMAXPROCS(0)) || o.GroupLimit != 256 || o.NoMigrate {
		t.Errorf("%+v", o)
	}
}
