package snsonce_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume/sqsonce/snsonce"
	"github.com/everonce/everonce/outbox"
)

// Calls and answers follow the API's documentation: failures are reported for each entry.
func TestPublishesToATopic(t *testing.T) {
	var calls []url.Values
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		form, err := url.ParseQuery(string(body))
		if err != nil {
			t.Error(err)
		}
		calls = append(calls, form)
		answer := ""
		for i := 1; form.Get(fmt.Sprintf("PublishBatchRequestEntries.member.%d.Id", i)) != ""; i++ {
			id := form.Get(fmt.Sprintf("PublishBatchRequestEntries.member.%d.Id", i))
			switch form.Get(fmt.Sprintf("PublishBatchRequestEntries.member.%d.Message", i)) {
			case "refused":
				answer += "<Failed><member><Id>" + id + "</Id><Code>InvalidParameter</Code><Message>no</Message><SenderFault>true</SenderFault></member></Failed>"
			case "failed":
				answer += "<Failed><member><Id>" + id + "</Id><Code>InternalError</Code><SenderFault>false</SenderFault></member></Failed>"
			}
		}
		fmt.Fprintf(w, `<PublishBatchResponse xmlns="http://sns.amazonaws.com/doc/2010-03-31/"><PublishBatchResult>%s</PublishBatchResult></PublishBatchResponse>`, answer)
	}))
	defer server.Close()
	client := sns.New(sns.Options{BaseEndpoint: &server.URL, Region: "eu", Credentials: aws.AnonymousCredentials{}})
	p, err := snsonce.NewPublisher(client, func(e *outbox.Event) string { return "arn:aws:sns:eu:1:" + e.Topic + ".fifo" })
	if err != nil {
		t.Fatal(err)
	}
	var events []outbox.Event
	for i, payload := range []string{"one", "refused", "failed", "behind"} {
		events = append(events, outbox.Event{ID: fmt.Sprint("e", i), Topic: "orders", Key: map[bool]string{true: "k"}[i >= 2], Payload: []byte(payload), Headers: map[string]string{"trace": "t"}})
	}
	errs := p.Publish(context.Background(), events)
	_, refused := errors.AsType[*everonce.PermanentError](errs[1])
	if errs[0] != nil || !refused || errs[2] == nil || errs[3] == nil || errors.Is(errs[2], outbox.ErrUnavailable) || len(calls) != 1 {
		t.Errorf("the errors are %v, after %d calls", errs, len(calls))
	}
	const first = "PublishBatchRequestEntries.member.1."
	call := calls[0]
	if call.Get("TopicArn") != "arn:aws:sns:eu:1:orders.fifo" || call.Get(first+"MessageGroupId") != "e0" || call.Get(first+"MessageDeduplicationId") != "e0" ||
		call.Get("PublishBatchRequestEntries.member.3.MessageGroupId") != "k" || len(call.Get(first+"MessageAttributes.entry.1.Name")) == 0 {
		t.Errorf("the call is %v", call)
	}
}
