package consume

import (
	"log/slog"
	"reflect"
	"testing"
	"time"

	"github.com/everonce/everonce"
)

// Zero fields have the defaults of docs/reference/options.md.
func TestDefaults(t *testing.T) {
	t.Parallel()
	w, err := (*Workers)(nil).validated()
	if want := (Workers{
		Concurrency: 8, Batch: 1, BatchDelay: 10 * time.Millisecond, Backoff: Backoff{Min: time.Second, Max: time.Minute},
		DrainTimeout: 30 * time.Second, SettleTimeout: 10 * time.Second, Log: slog.Default(),
	}); err != nil || !reflect.DeepEqual(w, want) {
		t.Errorf("Workers: %+v, %v; want %+v", w, err, want)
	}
	s, err := (&Spec[string]{Consumer: "billing", Key: ProducerID()}).common().withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if want := (RetryPolicy{Limit: 10, Min: time.Second, Max: 10 * time.Minute}); s.Retry != want {
		t.Errorf("Retry: %+v, want %+v", s.Retry, want)
	}
	if s.MaxBody != 16<<20 || s.Window != 7*24*time.Hour || s.Lifetime != everonce.ForQueue() || s.Decode == nil {
		t.Errorf("MaxBody %d, Window %v, Lifetime %v", s.MaxBody, s.Window, s.Lifetime)
	}
	for _, f := range []Compare{{JSON: true}, {JSONOnly: []string{"/id"}}, {JSONExcept: []string{"/at"}}} {
		s, err := (&TxSpec[string, int]{Consumer: "billing", Key: ProducerID(), Compare: f}).common().withDefaults()
		if err != nil || s.MaxBody != 1<<20 {
			t.Errorf("%+v: MaxBody %d, %v", f, s.MaxBody, err)
		}
	}
	if _, err := (&Spec[string]{Consumer: "billing", Key: ProducerID(), Lifetime: everonce.Lifetime{Retention: s.Window - 1}}).common().withDefaults(); err == nil {
		t.Error("a lifetime that is shorter than the window is accepted")
	}
}
