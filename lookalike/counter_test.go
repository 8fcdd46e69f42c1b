package lookalike_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/lookalike"
	"github.com/everonce/everonce/store/memstore"
)

func counting(t *testing.T, opts *lookalike.Options) (*lookalike.Counter, *everonce.Receiver) {
	t.Helper()
	counter, err := lookalike.NewCounter(opts)
	if err != nil {
		t.Fatal(err)
	}
	recv, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, &everonce.Options{Observer: counter})
	if err != nil {
		t.Fatal(err)
	}
	return counter, recv
}

// TestResendsUnderNewKeys: what a producer sends again under a new ID is counted; a duplicate under its own ID, the
// same content in another scope, other content, and what a window or a full memory has forgotten are not.
func TestResendsUnderNewKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counter, recv := counting(t, &lookalike.Options{Window: time.Hour, Capacity: 2})
		do := func(scope, id, content string, want lookalike.Counts) {
			t.Helper()
			var opts []everonce.CallOption
			if content != "" {
				opts = append(opts, everonce.FingerprintOf(content))
			}
			key := everonce.Key{Scope: everonce.ScopeOf(scope), ID: id}
			if _, err := everonce.Do(t.Context(), recv, key, func(context.Context, *everonce.Attempt) (int, error) { return 1, nil }, opts...); err != nil {
				t.Fatal(err)
			}
			if got := counter.Counts(); got != want {
				t.Errorf("after %s/%s: %+v, want %+v", scope, id, got, want)
			}
		}
		do("mail", "1", "a", lookalike.Counts{Operations: 1})
		do("mail", "1", "a", lookalike.Counts{Operations: 1})
		do("mail", "2", "a", lookalike.Counts{Operations: 2, Lookalikes: 1})
		do("mail", "3", "b", lookalike.Counts{Operations: 3, Lookalikes: 1})
		do("mail", "4", "", lookalike.Counts{Operations: 4, Lookalikes: 1, Uncompared: 1})
		do("bill", "5", "a", lookalike.Counts{Operations: 5, Lookalikes: 1, Uncompared: 1})
		do("mail", "6", "a", lookalike.Counts{Operations: 6, Lookalikes: 1, Uncompared: 1}) // the oldest was forgotten
		time.Sleep(time.Hour + 1)
		do("mail", "7", "a", lookalike.Counts{Operations: 7, Lookalikes: 1, Uncompared: 1})
		do("mail", "8", "a", lookalike.Counts{Operations: 8, Lookalikes: 2, Uncompared: 1})
		if share := counter.Counts().Share(); share != 2.0/7 {
			t.Errorf("the share is %v", share)
		}
	})
}

// TestMessagesAndRequestsAreCompared: messages and HTTP requests have a fingerprint by default. A failed operation
// has no effect to repeat.
func TestMessagesAndRequestsAreCompared(t *testing.T) {
	t.Parallel()
	counter, recv := counting(t, nil)
	fail := true
	consumer, err := consume.New(recv, consume.Spec[string]{Consumer: "mail", Key: consume.ProducerID(), Handle: func(context.Context, *consume.Message, string) error {
		if fail {
			return everonce.NotDone(errors.New("try again"))
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	consumer.Handle(t.Context(), &consume.Message{ID: "0", Body: []byte(`"order-1"`)})
	fail = false
	protect, err := httponce.Middleware(recv, httponce.Unscoped(), nil)
	if err != nil {
		t.Fatal(err)
	}
	handler := protect(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for i := range 2 {
		consumer.Handle(t.Context(), &consume.Message{ID: fmt.Sprint(i), Body: []byte(`"order-1"`)})
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/charges", strings.NewReader("order-1"))
		r.Header.Set("Idempotency-Key", fmt.Sprint(i))
		handler.ServeHTTP(httptest.NewRecorder(), r)
	}
	if got := counter.Counts(); got != (lookalike.Counts{Operations: 4, Lookalikes: 2}) {
		t.Errorf("%+v", got)
	}
}

// Example counts the orders that a producer sends under two keys.
func Example() {
	if err := count(memstore.New(nil), nil); err != nil {
		panic(err)
	}
	// Output:
	// mail about order-1
	// mail about order-1
	// {Operations:2 Lookalikes:1 Uncompared:0}
}

func count(store everonce.Store, observer everonce.Observer) error {
	counter, err := lookalike.NewCounter(&lookalike.Options{Window: 10 * time.Minute})
	if err != nil {
		return err
	}
	receiver, err := everonce.NewReceiver(store, everonce.Refuse, &everonce.Options{
		Observer: everonce.JoinObservers(observer, counter),
	})
	if err != nil {
		return err
	}
	consumer, err := consume.New(receiver, consume.Spec[string]{
		Consumer: "mail", Key: consume.ProducerID(),
		Handle: func(_ context.Context, _ *consume.Message, order string) error {
			fmt.Println("mail about", order)
			return nil
		},
	})
	if err != nil {
		return err
	}
	for _, id := range []string{"6f1c", "a03e"} { // the producer's library makes a new ID for each publish
		consumer.Handle(context.Background(), &consume.Message{ID: id, Body: []byte(`"order-1"`)})
	}
	fmt.Printf("%+v\n", counter.Counts())
	return nil
}
