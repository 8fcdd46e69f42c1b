package httponce_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/store/memstore"
)

// A tool can read the answers that records keep.
func TestAnswersInRecordsCanBeRead(t *testing.T) {
	store := memstore.New(nil)
	recv, err := everonce.NewReceiver(store, everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	protect, err := httponce.Middleware(recv, httponce.Unscoped(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for status, code := range map[int]string{201: "", 402: "http_402"} {
		key := http.StatusText(status)
		send(protect(answers(status, "body")), "POST", "/payments", "{}", "Idempotency-Key", `"`+key+`"`)
		got, err := store.Get(t.Context(), driver.GetRequest{ID: keyOf(key).RecordID()})
		if err != nil || !got.Found {
			t.Fatal(got.Found, err)
		}
		saved, summary := got.Record.Result.Data, got.Record.Result.Summary
		if code != "" {
			var failure everonce.PermanentError
			if err := json.Unmarshal(saved, &failure); err != nil || failure.Code != code || string(summary) != code {
				t.Fatalf("%s, %q: %v", saved, summary, err)
			}
			saved, summary = failure.Detail, nil
		}
		var a httponce.Answer
		if err := a.UnmarshalBinary(saved); err != nil {
			t.Fatal(err)
		}
		const want = `"headers":{"Location":["/payments/1"]},"body":"body"}`
		if text, err := json.Marshal(a); err != nil || string(text) != map[int]string{201: `{"status":201,`, 402: `{"status":402,`}[status]+want {
			t.Errorf("%s, %v", text, err)
		}
		if summary == nil {
			continue
		}
		if err := a.UnmarshalBinary(summary); err != nil || a.Status != status {
			t.Errorf("the summary: %+v, %v", a, err)
		}
	}
	before := httponce.Answer{Status: 204}
	a := before
	for _, text := range []string{"", "\x01", "\x02\x00\xc8\x01\x00", `{"status":201}`} {
		if err := a.UnmarshalBinary([]byte(text)); err == nil || !reflect.DeepEqual(a, before) {
			t.Errorf("%q: %+v, %v", text, a, err)
		}
	}
	if err := a.UnmarshalBinary(nil); errors.Is(err, nil) {
		t.Error("nothing is an answer")
	}
}
