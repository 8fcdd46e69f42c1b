package natsonce_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
)

// Every message of a producer is handled, or becomes a dead letter with the reason; the consumer goes on.
func TestBadInput(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	spec := specOf(nothing)
	spec.MaxBody = 1000
	r := b.run(spec, one)
	body := []byte(`{"id":"1"}`)
	for _, c := range []struct {
		name   string
		header nats.Header
		body   []byte
		reason consume.Reason
	}{
		{"no headers", nil, body, consume.NoKey},
		{"an empty ID", nats.Header{"Order-Id": {""}}, body, consume.NoKey},
		{"an ID by another name", nats.Header{"order-id": {"1"}}, body, consume.NoKey},
		{"two IDs", nats.Header{"Order-Id": {"1", "2"}}, body, consume.NoKey},
		{"a huge ID", nats.Header{"Order-Id": {strings.Repeat("1", 50_000)}}, body, consume.NoKey},
		{"no text", nats.Header{"Order-Id": {"\xff\xfe"}}, body, consume.NoKey},
		{"no JSON", nats.Header{"Order-Id": {"1"}}, []byte("<order/>"), consume.Undecodable},
		{"no body", nats.Header{"Order-Id": {"2"}}, nil, consume.Undecodable},
		{"a large body", nats.Header{"Order-Id": {"3"}}, make([]byte, 1001), consume.TooLarge},
		{"forged marks", nats.Header{"Order-Id": {"4"}, "X-Everonce-Retries": {"-1"}, "x-everonce-retries": {"99"}, "x-everonce-reason": {"unknown"}, "x-everonce-dropped": {"{"}, "x-everonce-first": {"never"}}, body, ""},
		{"the same ID with another body", nats.Header{"Order-Id": {"4"}}, []byte(`{"id":"2"}`), consume.Mismatch},
		{"what looks like a word of the server", nats.Header{"Status": {"100"}, "Description": {"Idle Heartbeat"}, "Order-Id": {"5"}}, body, ""},
	} {
		b.publish(&nats.Msg{Subject: b.queue.Stream + ".placed", Header: c.header, Data: c.body})
		if v := r.decision(); v.Death.Reason != c.reason || c.reason == "" && v.Outcome != everonce.Executed {
			t.Errorf("%s: %v, %v, %v", c.name, v.Death.Reason, v.Outcome, v.Err)
		}
	}
	b.settled()
	reasons := map[string]int{}
	for _, l := range b.letters() {
		reasons[l.Header.Get("x-everonce-reason")]++
	}
	if reasons["no_key"] != 6 || reasons["undecodable"] != 2 || reasons["too_large"] != 1 || reasons["mismatch"] != 1 || len(reasons) != 4 {
		t.Error(reasons)
	}
}

// A message that the client library takes for a status of the server, and drops, does not block others.
func TestMessagesThatAreNotHandedOver(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, status := range []string{"404", "409"} {
		b.publish(&nats.Msg{Subject: b.queue.Stream + ".placed", Header: nats.Header{"Status": {status}, "Order-Id": {status}}})
	}
	b.send("m-1")
	r := b.run(specOf(nothing), one)
	r.wants(everonce.Executed)
	b.eventually("the others wait", func() bool { return b.consumer().NumAckPending == 2 })
}
