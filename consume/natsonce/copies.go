package natsonce

import (
	"maps"
	"math"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/internal/copies"
)

// isInstruction reports whether a header is meant for the server, or was written by it. A copy has none of them: what the producer expected
// of the stream is not so any more, and a time to live would let the copy go.
func isInstruction(name string) bool {
	const prefix = "nats-"
	return len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix)
}

// maxHeaders is how many bytes of headers JetStream takes, less what is set when a message is published.
const maxHeaders = math.MaxUint16 - 1<<10

// copyOf is the message as its producer has sent it, with note in place of what an earlier copy has noted, and the subject that it was sent
// to, if that is to be noted. largest is what the server takes.
func copyOf(h nats.Header, body []byte, note *copies.Note, subject string, largest int64) *nats.Msg {
	kept := map[string]string{copies.MessageID: h.Get(jetstream.MsgIDHeader), headerSubject: subject}
	for name, as := range tickHeaders {
		kept[as] = h.Get(name)
	}
	if isCopy(h) {
		for _, as := range []string{copies.MessageID, headerScheduler, headerScheduleNext} {
			kept[as] = h.Get(as)
		}
	}
	sent := nats.Header{}
	for name, values := range h {
		if !copies.Ours(name) && !isInstruction(name) {
			sent[name] = values
		}
	}
	noted := func() map[string]string {
		head := map[string]string{}
		note.Write(head)
		for name, value := range kept {
			if value != "" {
				head[name] = value
			}
		}
		return head
	}
	all := texts(sent, func(string) bool { return true })
	maps.Copy(all, noted())
	const line = len(": \r\n")
	for _, name := range copies.Fit(all, min(maxHeaders, int(largest)-len(body)-1<<10), line) {
		delete(sent, name)
		note.Dropped = append(note.Dropped, name)
	}
	for name, value := range noted() {
		sent.Set(name, oneLine.Replace(value))
	}
	return &nats.Msg{Header: sent, Data: body}
}

// oneLine keeps a text in its header.
var oneLine = strings.NewReplacer("\r", " ", "\n", " ")

// deadLetter is the copy among the dead letters.
func deadLetter(d *delivery, l *consume.Death, largest int64) *nats.Msg {
	h := d.msg.Headers()
	note := copies.Read(texts(h, copies.Ours))
	note.Retries, note.First, note.Queue, note.Death = 0, d.m.First, d.at.Stream, *l
	return copyOf(h, d.m.Body, &note, d.m.Subject, largest)
}

// replayCopy is the message as it was sent.
func replayCopy(raw *jetstream.RawStreamMsg, largest int64) *nats.Msg {
	note := copies.Read(texts(raw.Header, copies.Ours))
	note.Death, note.Queue = consume.Death{}, ""
	note.Replays = min(note.Replays, math.MaxInt32-1) + 1
	msg := copyOf(raw.Header, raw.Data, &note, "", largest)
	msg.Subject = raw.Header.Get(headerSubject)
	return msg
}
