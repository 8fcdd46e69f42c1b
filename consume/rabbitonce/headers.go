package rabbitonce

import (
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce/consume/internal/copies"
)

// Headers of copies that only AMQP needs.
const (
	headerRoutingKey = copies.Prefix + "routing-key" // the original routing key
	headerExchange   = copies.Prefix + "exchange"    // the original exchange
	headerUser       = copies.Prefix + "user-id"     // the original user-id, which only that user may publish
)

// ours are the headers that fit never drops, unless a producer forged a large one.
var ours = map[string]bool{
	copies.Retries: true, copies.First: true, copies.Queue: true, headerRoutingKey: true, headerExchange: true, headerUser: true, copies.Replays: true,
	copies.Reason: true, copies.Detail: true, copies.Attempts: true, copies.Last: true, copies.Consumer: true, copies.KeyHash: true, copies.MessageID: true,
}

// routingHeaders are headers that would send a copy to other queues too.
var routingHeaders = map[string]string{"CC": copies.Prefix + "cc", "BCC": copies.Prefix + "bcc"}

// brokerHeaders are headers in which a broker records the way of a message. A copy starts without them.
var brokerHeaders = map[string]bool{
	"x-death": true, "x-delivery-count": true, "x-acquired-count": true, "x-opt-deaths": true,
	"x-first-death-exchange": true, "x-first-death-queue": true, "x-first-death-reason": true,
	"x-last-death-exchange": true, "x-last-death-queue": true, "x-last-death-reason": true,
}

// textOf returns a header's value as text, or false if it has no text, like a table.
func textOf(value any) (string, bool) {
	switch v := value.(type) {
	case string:
		return v, utf8.ValidString(v)
	case []byte:
		return string(v), utf8.Valid(v)
	case bool:
		return strconv.FormatBool(v), true
	case float32:
		return strconv.FormatFloat(float64(v), 'g', -1, 32), true
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64), true
	case time.Time:
		return v.UTC().Format(time.RFC3339), true
	}
	if n, ok := integer(value); ok {
		return strconv.FormatInt(n, 10), true
	}
	return "", false
}

func integer(value any) (int64, bool) {
	switch v := value.(type) {
	case byte:
		return int64(v), true
	case int8:
		return int64(v), true
	case int16:
		return int64(v), true
	case uint16:
		return int64(v), true
	case int32:
		return int64(v), true
	case uint32:
		return int64(v), true
	case int64:
		return v, true
	case int:
		return int64(v), true
	}
	return 0, false
}

// countOf reads a count. It returns 0 for other values.
func countOf(headers amqp.Table, name string) int {
	n, ok := integer(headers[name])
	if !ok || n < 0 || n > math.MaxInt32 {
		return 0
	}
	return int(n)
}

func stringOf(headers amqp.Table, name string) string {
	s, _ := headers[name].(string)
	return s
}

// timeOf reads a time. It returns the zero time for other values.
func timeOf(headers amqp.Table, name string) time.Time {
	return copies.ParseTime(stringOf(headers, name))
}

// death is one entry of x-death, which the broker writes when it moves a message.
type death struct {
	queue, reason string
	at            time.Time
}

// deaths reads x-death, newest first, without entries that cannot be read.
func deaths(headers amqp.Table) []death {
	list, _ := headers["x-death"].([]any)
	found := make([]death, 0, len(list))
	for _, entry := range list {
		t, ok := entry.(amqp.Table)
		if !ok {
			continue
		}
		d := death{queue: stringOf(t, "queue"), reason: stringOf(t, "reason")}
		at, _ := t["time"].(time.Time)
		d.at = copies.Writable(at)
		found = append(found, d)
	}
	return found
}
