package natsonce

import (
	"math"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/internal/copies"
)

// instructions begin the names of the headers that are meant for the server, or that it has written. A copy has none of them: what the
// producer expected of the stream is not so any more, and a time to live would let the copy go.
const instructions = "Nats-"

// maxHeaders is how many bytes of headers JetStream takes, less what is set when a message is published.
const maxHeaders = math.MaxUint16 - 1<<10

// copyOf is the message as its producer has sent it, with a note in place of ours that it had. largest is what the server takes.
func copyOf(h nats.Header, body []byte, note *copies.Note, largest int64, ours map[string]string) *nats.Msg {
	id := h.Get(jetstream.MsgIDHeader)
	if isCopy(h) {
		id = h.Get(copies.MessageID)
	}
	kept := nats.Header{}
	for name, values := range h {
		if !copies.Ours(name) && !strings.HasPrefix(name, instructions) {
			kept[name] = values
		}
	}
	head := map[string]string{}
	note.Write(head)
	if id != "" {
		head[copies.MessageID] = id
	}
	for name, value := range ours {
		head[name] = value
	}
	all := texts(kept, func(string) bool { return true })
	for name, value := range head {
		all[name] = value
	}
	const line = len(": \r\n")
	if dropped := copies.Fit(all, min(maxHeaders, int(largest)-len(body)-1<<10), line); dropped != nil {
		note.Dropped = append(note.Dropped, dropped...)
		for _, name := range dropped {
			delete(kept, name)
		}
		note.Write(head)
		for name, value := range ours {
			head[name] = value
		}
		if id != "" {
			head[copies.MessageID] = id
		}
	}
	for name, value := range head {
		kept.Set(name, oneLine.Replace(value))
	}
	return &nats.Msg{Header: kept, Data: body}
}

// oneLine keeps a text in its header.
var oneLine = strings.NewReplacer("\r", " ", "\n", " ")

// deadLetter is the copy among the dead letters.
func deadLetter(d *delivery, l *consume.DeadLetter, largest int64) *nats.Msg {
	h := d.msg.Headers()
	note := copies.Read(texts(h, copies.Ours))
	note.Retries, note.First, note.Queue, note.Letter = 0, d.m.First, d.at.Stream, *l
	msg := copyOf(h, d.m.Body, &note, largest, map[string]string{headerSubject: d.m.Subject})
	return msg
}

// replayCopy is the message as it was sent.
func replayCopy(raw *jetstream.RawStreamMsg, largest int64) *nats.Msg {
	note := copies.Read(texts(raw.Header, copies.Ours))
	note.Letter, note.Queue = consume.DeadLetter{}, ""
	note.Replays = min(note.Replays, math.MaxInt32-1) + 1
	msg := copyOf(raw.Header, raw.Data, &note, largest, nil)
	msg.Subject = raw.Header.Get(headerSubject)
	return msg
}
