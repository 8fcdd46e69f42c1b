package eventbridgeonce_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume/sqsonce/eventbridgeonce"
	"github.com/everonce/everonce/outbox"
)

// Calls and answers follow the API's documentation: it answers 200, and says for each entry whether it was accepted.
func TestPutsEvents(t *testing.T) {
	type entry struct {
		Detail, DetailType, Source, EventBusName string
		Resources                                []string
	}
	var calls [][]entry
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		var call struct{ Entries []entry }
		if err := json.Unmarshal(body, &call); err != nil || r.Header.Get("X-Amz-Target") != "AWSEvents.PutEvents" {
			t.Errorf("%v: %s", err, r.Header)
		}
		calls = append(calls, call.Entries)
		answers := []map[string]string{}
		for i, e := range call.Entries {
			switch e.Detail {
			case `{"do":"throttle"}`:
				answers = append(answers, map[string]string{"ErrorCode": "ThrottlingException"})
			case `{"do":"fail"}`:
				answers = append(answers, map[string]string{"ErrorCode": "NotAuthorizedForDetailTypeException"})
			default:
				answers = append(answers, map[string]string{"EventId": fmt.Sprint("id-", i)})
			}
		}
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		if err := json.NewEncoder(w).Encode(map[string]any{"FailedEntryCount": 0, "Entries": answers}); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	client := eventbridge.New(eventbridge.Options{BaseEndpoint: &server.URL, Region: "eu", Credentials: aws.AnonymousCredentials{}})
	p, err := eventbridgeonce.NewPublisher(client, "default", "shop")
	if err != nil {
		t.Fatal(err)
	}
	var events []outbox.Event
	for i, payload := range []string{`{"do":"one"}`, `{"do":"throttle"}`, `{"do":"fail"}`, `[]`, `{"do":"behind"}`} {
		events = append(events, outbox.Event{ID: fmt.Sprint("e", i), Topic: "orders", Type: "placed", Payload: []byte(payload), Key: map[int]string{1: "k", 4: "k"}[i]})
	}
	errs := p.Publish(context.Background(), events)
	_, refused := errors.AsType[*everonce.PermanentError](errs[3])
	if errs[0] != nil || !errors.Is(errs[1], outbox.ErrUnavailable) || errs[2] == nil || errors.Is(errs[2], outbox.ErrUnavailable) || !refused || errs[4] == nil || len(calls) != 1 {
		t.Errorf("the errors are %v, after %d calls", errs, len(calls))
	}
	if e := calls[0][0]; e.Source != "shop" || e.DetailType != "placed" || e.EventBusName != "default" || fmt.Sprint(e.Resources) != "[everonce:event:e0]" {
		t.Errorf("the entry is %+v", e)
	}
}
