package httponce

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// A credential that serves as the principal is in no record; who has it is the same caller in every process and
// version.
func TestHashedPrincipal(t *testing.T) {
	const credential = "sk-4Vq1"
	byKey := Hashed(func(r *http.Request) (string, error) { return r.Header.Get("X-Api-Key"), nil })
	r := request("POST", "/charges", "{}", "Idempotency-Key", "k", "X-Api-Key", credential)
	// The SHA-256 of "everonce/httponce/principal", a zero byte and the credential. It must never change: records are
	// found by it.
	const want = "2065e1e58ddda9e5048f5999e31abcf145771898432c3cf26d2309546d348102"
	if name, err := byKey.name(r); err != nil || name != want {
		t.Errorf("it is %q, %v, want %q", name, err, want)
	}
	store := memstore.New(nil)
	recv, err := everonce.NewReceiver(store, everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	protect, err := Middleware(recv, byKey, nil)
	if err != nil {
		t.Fatal(err)
	}
	protect(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(httptest.NewRecorder(), r)
	all, err := store.List(t.Context(), driver.ListRequest{Limit: 10})
	if err != nil || len(all.Records) != 1 {
		t.Fatalf("%d records, %v", len(all.Records), err)
	}
	if text := fmt.Sprintf("%+v", all.Records[0]); strings.Contains(text, credential) || !strings.Contains(text, want) {
		t.Errorf("the record is %s", text)
	}
}

// The hash of an empty name is empty, and not a name.
func TestHashedPrincipalFailsClosed(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		name      string
		err, want error
	}{{"", nil, errNoPrincipal}, {"", broken, broken}, {"alice", broken, broken}} {
		name, err := Hashed(func(*http.Request) (string, error) { return c.name, c.err }).name(nil)
		if name != "" || !errors.Is(err, c.want) {
			t.Errorf("%+v: %q, %v", c, name, err)
		}
	}
	recv, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Middleware(recv, Hashed(nil), nil); !errors.Is(err, everonce.ErrInvalidArgument) {
		t.Errorf("no function: %v", err)
	}
}
