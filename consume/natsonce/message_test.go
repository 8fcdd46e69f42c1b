package natsonce

import (
	"testing"

	"github.com/nats-io/nats.go"
)

// The ID that a publisher gave a message goes before the one in the body of a CloudEvent, as on every broker.
func TestThePublishersIDGoesFirst(t *testing.T) {
	for body, headers := range map[string]nats.Header{`{"id":"body"}`: {"ce-id": {"header%201"}}, `{"id":"header 1"}`: nil, `[]`: {"ce-id": {"header%201"}}} {
		h := nats.Header{"Content-Type": {"application/cloudevents+json"}}
		for name, values := range headers {
			h[name] = values
		}
		if m := readMessage(h, []byte(body)); m.ID != "header 1" {
			t.Errorf("%s, %v: the ID is %q", body, headers, m.ID)
		}
	}
}
