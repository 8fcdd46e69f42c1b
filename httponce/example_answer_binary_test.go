package httponce_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/store/memstore"
)

// A tool shows what was answered, from the record alone.
func ExampleAnswer_UnmarshalBinary() {
	store := memstore.New(nil)
	recv, err := everonce.NewReceiver(store, everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}
	protect, err := httponce.Middleware(recv, httponce.Unscoped(), nil)
	if err != nil {
		panic(err)
	}
	r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader("{}"))
	r.Header.Set("Idempotency-Key", "order-7")
	protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/payments/7")
		w.WriteHeader(http.StatusCreated)
	})).ServeHTTP(httptest.NewRecorder(), r)

	key := everonce.Key{Scope: everonce.ScopeOf("everybody", "POST", "/payments"), ID: "order-7"}
	got, err := store.Get(context.Background(), driver.GetRequest{ID: key.RecordID()})
	if err != nil {
		panic(err)
	}
	var a httponce.Answer
	if err := a.UnmarshalBinary(got.Record.Result.Data); err != nil {
		panic(err)
	}
	text, err := json.Marshal(a)
	fmt.Println(got.Record.Result.Codec, string(text), err)
	// Output: http/1 {"status":201,"headers":{"Location":["/payments/7"]},"body":""} <nil>
}
