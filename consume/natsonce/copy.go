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

// isInstruction reports whether a header is an instruction to the server or was written by it. A copy has none of
// them: the stream no longer is as the producer expected, and a time to live would delete the copy.
func isInstruction(name string) bool {
	const prefix = "nats-"
	return len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix)
}

// maxHeaders is the size of the headers that JetStream accepts, less those that are set when a message is published.
const maxHeaders = math.MaxUint16 - 1<<10

// copyOf returns a message as its producer sent it, with the headers of note, and with the original subject if it is
// not empty. largest is the size of the largest message that the server accepts.
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
	all := textHeaders(sent, func(string) bool { return true })
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

// oneLine removes line breaks from the value of a header.
var oneLine = strings.NewReplacer("\r", " ", "\n", " ")

// deadLetter returns the message of a dead letter.
func deadLetter(d *delivery, l *consume.Death, largest int64) *nats.Msg {
	h := d.msg.Headers()
	note := copies.Read(textHeaders(h, copies.Ours))
	note.Retries, note.First, note.Queue, note.Death = 0, d.m.First, d.at.Stream, *l
	return copyOf(h, d.m.Body, &note, d.m.Subject, largest)
}

// replayCopy returns the message as its producer sent it.
func replayCopy(raw *jetstream.RawStreamMsg, largest int64) *nats.Msg {
	note := copies.Read(textHeaders(raw.Header, copies.Ours))
	note.Death, note.Queue = consume.Death{}, ""
	note.Replays = min(note.Replays, math.MaxInt32-1) + 1
	msg := copyOf(raw.Header, raw.Data, &note, "", largest)
	msg.Subject = raw.Header.Get(headerSubject)
	return msg
}
