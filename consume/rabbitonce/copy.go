package rabbitonce

import (
	"maps"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/internal/copies"
)

// original returns the message as its producer sent it, without what would harm a copy: a time to live would delete
// the copy, a user-id is refused from another user, and CC and BCC would send the copy to other queues. A copy is
// persistent.
func original(d *amqp.Delivery) amqp.Publishing {
	headers := make(amqp.Table, len(d.Headers)+10)
	for name, value := range d.Headers {
		if kept, ok := routingHeaders[name]; ok {
			name = kept
		}
		if !brokerHeaders[name] {
			headers[name] = value
		}
	}
	if d.UserId != "" {
		headers[headerUser] = d.UserId
	}
	if isDeadLetter(d) {
		for _, name := range []string{copies.Reason, copies.Detail, copies.Attempts, copies.Last, copies.Consumer, copies.KeyHash, copies.MessageID, copies.Retries} {
			delete(headers, name)
		}
	}
	return amqp.Publishing{
		Headers: headers, Body: d.Body, DeliveryMode: amqp.Persistent,
		ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, Priority: d.Priority, CorrelationId: d.CorrelationId,
		ReplyTo: d.ReplyTo, MessageId: producerID(d), Timestamp: d.Timestamp, Type: d.Type, AppId: d.AppId,
	}
}

// copyOf is original with headers that say where the message came from. Its queue is the one that it was consumed
// from, whatever the message's headers say, because a replay sends it there.
func copyOf(d *amqp.Delivery, m *consume.Message, queue string, now time.Time) amqp.Publishing {
	msg := original(d)
	if !maybeCopy(d) {
		delete(msg.Headers, copies.Replays) // set by a producer
	}
	if _, known := msg.Headers[headerRoutingKey]; !known || !maybeCopy(d) {
		msg.Headers[headerRoutingKey], msg.Headers[headerExchange] = d.RoutingKey, d.Exchange
	}
	if msg.Headers[copies.First] == nil {
		t := m.First
		if t.IsZero() {
			t = now
		}
		msg.Headers[copies.First] = copies.TimeText(t)
	}
	msg.Headers[copies.Queue] = queue
	return msg
}

// retryCopy returns the copy for a retry.
func retryCopy(d *amqp.Delivery, m *consume.Message, queue string, retries int, now time.Time) amqp.Publishing {
	msg := copyOf(d, m, queue, now)
	delete(msg.Headers, copies.Retries)
	if retries > 0 {
		msg.Headers[copies.Retries] = int64(retries)
	}
	return msg
}

// deadLetter returns the message of a dead letter.
func deadLetter(d *amqp.Delivery, m *consume.Message, queue string, l *consume.Death) amqp.Publishing {
	msg := copyOf(d, m, queue, l.Last)
	for _, name := range []string{copies.Retries, copies.MessageID, copies.KeyHash} { // set by a producer, unless set here
		delete(msg.Headers, name)
	}
	if msg.MessageId != "" {
		msg.Headers[copies.MessageID] = msg.MessageId
	}
	if l.KeyHash != "" {
		msg.MessageId = l.KeyHash
		msg.Headers[copies.KeyHash] = l.KeyHash
	}
	msg.Headers[copies.Reason] = string(l.Reason)
	msg.Headers[copies.Detail] = copies.Cut(l.Detail, copies.MaxDetail)
	msg.Headers[copies.Attempts] = int64(l.Attempts)
	msg.Headers[copies.Last] = copies.TimeText(l.Last)
	msg.Headers[copies.Consumer] = l.Consumer
	return msg
}

// roomForHeaders returns the largest size of the headers of a copy, in bytes. All headers must fit into one frame, and
// a copy has more of them than the message had. The other properties, seven strings of up to 255 bytes and some
// numbers, take less than 2 KiB.
func roomForHeaders(frame int) int { return frame - 2<<10 }

// fit removes the largest headers of the producer until the rest fits, and records their names. A copy that the broker
// refuses would be retried for ever. A header with one of the package's names that is larger than the package writes
// is the producer's too.
func fit(headers amqp.Table, room int) {
	if sizeOf(headers) <= room {
		return
	}
	dropped, _ := headers[copies.Dropped].([]any) // from an earlier copy
	if sizeOf(dropped) > room/2 {
		dropped = nil
	}
	delete(headers, copies.Dropped)
	size := sizeOf(headers) + 1 + len(copies.Dropped) + sizeOf(dropped)
	names := slices.DeleteFunc(slices.Collect(maps.Keys(headers)), func(name string) bool { return ours[name] && sizeOf(headers[name]) <= sizeOf("")+copies.MaxDetail })
	slices.SortFunc(names, func(a, b string) int { return sizeOf(headers[b]) - sizeOf(headers[a]) })
	for _, name := range names {
		if size <= room {
			break
		}
		size += sizeOf(name) - (1 + len(name) + sizeOf(headers[name])) // the name is always smaller
		delete(headers, name)
		dropped = append(dropped, name)
	}
	headers[copies.Dropped] = dropped
}

// sizeOf returns an upper bound for the size of a value on the wire.
func sizeOf(value any) int {
	switch v := value.(type) {
	case string:
		return 5 + len(v)
	case []byte:
		return 5 + len(v)
	case []any:
		size := 5
		for _, e := range v {
			size += sizeOf(e)
		}
		return size
	case amqp.Table:
		size := 5
		for name, e := range v {
			size += 1 + len(name) + sizeOf(e)
		}
		return size
	}
	return 9
}
