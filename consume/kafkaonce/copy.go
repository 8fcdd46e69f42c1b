package kafkaonce

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/internal/copies"
)

// headerGroup is the consumer group that retries the message.
const headerGroup = copies.Prefix + "group"

// Headers of dead letters on Kafka. The record key of a dead letter is its ID. A dead letter without a value would be
// the tombstone that removes it.
const (
	headerKey     = copies.Prefix + "key"     // the record key
	headerNull    = copies.Prefix + "null"    // the value is null, not empty
	headerOmitted = copies.Prefix + "omitted" // the value was too large for a dead letter
)

// copyOf returns a record for another topic, with the producer's key, headers and value, and the headers of note. It
// has no timestamp, so that it gets the time at which it is produced.
func copyOf(r *kgo.Record, topic string, note *copies.Note, at string) *kgo.Record {
	c := &kgo.Record{Topic: topic, Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		if !copies.Ours(h.Key) {
			c.Headers = append(c.Headers, h)
		}
	}
	ours := map[string]string{}
	note.Write(ours)
	ours[headerOrigin] = at
	for _, name := range slices.Sorted(maps.Keys(ours)) {
		c.Headers = append(c.Headers, kgo.RecordHeader{Key: name, Value: []byte(ours[name])})
	}
	return c
}

// retryCopy returns the copy for a retry. It names the group, because all groups of the topic read its retry topics.
func retryCopy(r *kgo.Record, m *consume.Message, topic, group string, retries int) *kgo.Record {
	text, _ := textHeaders(r)
	note := copies.Read(text)
	c := copyOf(r, topic, &copies.Note{Retries: retries, Replays: note.Replays, First: m.First, Queue: m.Source}, m.BrokerID)
	c.Headers = append(c.Headers, kgo.RecordHeader{Key: headerGroup, Value: []byte(group)})
	return c
}

// otherGroups reports whether a retry belongs to another group. A retry belongs to its group even if the consumer was
// renamed.
func otherGroups(r *kgo.Record, group string) bool {
	text, _ := textHeaders(r)
	of := text[headerGroup]
	return of != "" && of != group
}

// deadLetter returns the record of a dead letter.
func deadLetter(r *kgo.Record, m *consume.Message, topic, queue string, l *consume.Death) *kgo.Record {
	text, _ := textHeaders(r)
	note := copies.Note{Replays: copies.Read(text).Replays, First: m.First, Queue: queue, Death: *l}
	c := copyOf(r, topic, &note, m.BrokerID)
	letter := consume.DeadLetter{Death: *l, Queue: queue}
	c.Headers = append(c.Headers, kgo.RecordHeader{Key: headerKey, Value: r.Key})
	if r.Value == nil {
		c.Value = []byte{}
		c.Headers = append(c.Headers, kgo.RecordHeader{Key: headerNull, Value: []byte("1")})
	}
	c.Key = []byte(copies.DeadLetterID(&letter, text, r.Key, r.Value))
	return c
}

// withoutValue removes the value of a dead letter and names the topic, partition and offset that still have it.
func withoutValue(letter *kgo.Record) {
	letter.Value = []byte{}
	letter.Headers = append(letter.Headers, kgo.RecordHeader{Key: headerOmitted, Value: []byte("1")})
}

// withoutHeaders removes all headers of a dead letter but the package's short ones. It has no value, so it cannot be
// replayed.
func withoutHeaders(letter *kgo.Record) {
	letter.Headers = slices.DeleteFunc(letter.Headers, func(h kgo.RecordHeader) bool {
		return !copies.Ours(h.Key) || len(h.Value) > copies.MaxDetail
	})
}

// deadLetterOf reads a dead letter. It returns false if the record is not one.
func deadLetterOf(r *kgo.Record) (l consume.DeadLetter, ok bool) {
	text, _ := textHeaders(r)
	note := copies.Read(text)
	if note.Death.Reason == "" {
		return l, false
	}
	sent := original(r)
	l = consume.DeadLetter{Death: note.Death, Message: messageOf(sent, note.Queue), Queue: note.Queue, Replays: note.Replays, ID: string(r.Key)}
	if has(r, headerOmitted) {
		l.Detail += fmt.Sprintf(" (the message was too large for a dead letter, which has no body, and may have no headers: it is at %s, topic:partition:offset)", text[headerOrigin])
	}
	return l, true
}

// original returns the record of a dead letter as it was consumed.
func original(r *kgo.Record) *kgo.Record {
	c := *r
	c.Key = nil
	for _, h := range r.Headers {
		if h.Key == headerKey {
			c.Key = h.Value
		}
	}
	if has(r, headerNull) {
		c.Value = nil
	}
	return &c
}

// replayCopy returns the record as the producer sent it, for its topic.
func replayCopy(r *kgo.Record) *kgo.Record {
	text, _ := textHeaders(r)
	note := copies.Read(text)
	return copyOf(original(r), note.Queue, &copies.Note{Replays: note.Replays + 1, First: note.First, Queue: note.Queue}, text[headerOrigin])
}

func has(r *kgo.Record, header string) bool {
	return slices.ContainsFunc(r.Headers, func(h kgo.RecordHeader) bool { return h.Key == header })
}

// due returns how long a message of a retry topic must wait. Timestamps have milliseconds. It waits no longer than the
// delay, whatever its producer's clock says.
func due(r *kgo.Record, delay time.Duration, now time.Time) time.Duration {
	return min(r.Timestamp.Add(delay+time.Millisecond).Sub(now), delay)
}
