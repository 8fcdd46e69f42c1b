package proxy

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/sqlitestore"
)

// From its start the proxy shows the unknown outcomes in its store, and removes expired records. No other process
// would, and an unknown outcome waits for an operator.
func TestUpkeepOfTheStore(t *testing.T) {
	file := filepath.Join(t.TempDir(), "proxy.db")
	left(t, file)

	p := start(t, func(http.ResponseWriter, *http.Request) {}, "--store=sqlite:"+file)
	for _, want := range []string{`everonce_records{state="abandoned"} 1`, `everonce_records{state="completed"} 0`, "everonce_purged_records_total 1"} {
		for text := ""; !strings.Contains(text, "\n"+want+"\n"); runtime.Gosched() {
			_, text = send(t, "GET", p.admin+"/metrics", "")
		}
	}
}

// left leaves two records in a store: of what is over, and of what is unknown.
func left(t *testing.T, file string) {
	t.Helper()
	store, err := sqlitestore.Open(t.Context(), file, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := everonce.NewReceiver(store, everonce.Refuse, &everonce.Options{Lifetime: everonce.Lifetime{Retention: time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	for id, ends := range map[string]error{"over": nil, "unknown": errors.New("the connection was lost")} {
		_, err := everonce.Do(t.Context(), r, everonce.Key{Scope: "test", ID: id}, func(context.Context, *everonce.Attempt) (string, error) { return "", ends })
		if errors.Is(err, everonce.ErrOutcomeUnknown) != (ends != nil) {
			t.Fatalf("%s: %v", id, err)
		}
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
}
