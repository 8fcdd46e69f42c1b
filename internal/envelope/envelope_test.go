package envelope_test

import (
	"testing"
	"time"

	"github.com/everonce/everonce/internal/envelope"
)

// A binding reads what it wrote, whatever the texts are.
func TestABindingReadsWhatItWrites(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_000, time.UTC)
	for _, text := range []string{"order.placed", "Jürgen \"50%\"", "\"7\"", "50%25", "a\r\nb: c", " ", "\xff"} {
		want := envelope.Envelope{ID: text, Type: text, Source: text, Key: text, Time: at}
		for name, b := range map[string]envelope.Binding{"HTTP": envelope.HTTP, "Kafka": envelope.Kafka, "AMQP": envelope.AMQP} {
			if got := envelope.Read("text/plain", b.Headers(want), nil); got != want {
				t.Errorf("%s: %+v, want %+v", name, got, want)
			}
		}
	}
}

func TestWhatIsRead(t *testing.T) {
	const body = `{"specversion":"1.0","id":"1","type":"order.placed","source":"/shop","partitionkey":"k","time":"2026-01-02T04:04:05+01:00","data":{"id":7}}`
	whole := envelope.Envelope{ID: "1", Type: "order.placed", Source: "/shop", Key: "k", Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	for name, tc := range map[string]struct {
		contentType, body string
		headers           map[string]string
		want              envelope.Envelope
	}{
		"structured":               {"application/CloudEvents+json ; charset=utf-8", body, map[string]string{"ce-id": "forged"}, whole},
		"JSON that is no event":    {"application/json", body, nil, envelope.Envelope{}},
		"structured, cut short":    {"application/cloudevents+json", body[:50], nil, envelope.Envelope{}},
		"structured, a name twice": {"application/cloudevents+json", `{"id":"1","id":"2"}`, map[string]string{"ce-id": "3"}, envelope.Envelope{ID: "3"}},
		"structured, in part":      {"application/cloudevents+json", `{"id":7,"type":true,"source":"/shop","partitionkey":1.5,"time":[]}`, map[string]string{"ce_type": "order.placed", "ce_partitionkey": "k"}, envelope.Envelope{ID: "7", Type: "order.placed", Source: "/shop", Key: "k"}},
		"for JMS":                  {"", "", map[string]string{"cloudEvents_type": "order.placed"}, envelope.Envelope{Type: "order.placed"}},
		"not encoded":              {"", "", map[string]string{"ce-type": "50% off"}, envelope.Envelope{Type: "50% off"}},
		"no time":                  {"", "", map[string]string{"ce_time": "yesterday", "ce_id": "1"}, envelope.Envelope{ID: "1"}},
	} {
		if got := envelope.Read(tc.contentType, tc.headers, []byte(tc.body)); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}
