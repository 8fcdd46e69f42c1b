// Package copies has what a copy of a message says about its way: a copy that is retried later, a dead letter, and a replay.
// It says so in headers that begin with [Prefix]. A handler does not see them.
package copies

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/everonce/everonce/consume"
)

// Prefix is the beginning of the names of our headers.
const Prefix = "x-everonce-"

// The headers of copies.
const (
	Retries = Prefix + "retries" // how often it was given back, and counted
	First   = Prefix + "first"   // when it was first sent, or first given back
	Queue   = Prefix + "queue"   // the queue or topic that it was consumed from
	Replays = Prefix + "replays" // how often it was replayed, as a dead letter
	Dropped = Prefix + "dropped" // names of headers that had no room

	// On dead letters only.
	Reason    = Prefix + "reason"
	Detail    = Prefix + "detail"
	Attempts  = Prefix + "attempts"
	Last      = Prefix + "last"
	Consumer  = Prefix + "consumer"
	KeyHash   = Prefix + "key-hash"
	MessageID = Prefix + "message-id" // the producer's
)

// MaxDetail bounds the text for people in a header, in bytes.
const MaxDetail = 2048

// Note is what the headers of a copy say, where all headers are text.
type Note struct {
	Retries, Replays int
	First            time.Time
	Queue            string
	Dropped          []string
	// Death says why the copy is a dead letter. Without a reason, the copy is not a dead letter.
	Death consume.Death
}

// Read reads the headers of a copy. What cannot be read counts as missing.
func Read(headers map[string]string) Note {
	n := Note{
		Retries: count(headers[Retries]), Replays: count(headers[Replays]), First: ParseTime(headers[First]), Queue: headers[Queue],
		Death: consume.Death{
			Reason: consume.Reason(headers[Reason]), Detail: headers[Detail], Consumer: headers[Consumer], Source: headers[Queue],
			KeyHash: headers[KeyHash], Attempts: count(headers[Attempts]), First: ParseTime(headers[First]), Last: ParseTime(headers[Last]),
		},
	}
	if json.Unmarshal([]byte(headers[Dropped]), &n.Dropped) != nil {
		n.Dropped = nil
	}
	return n
}

// Write puts n into the headers, in place of what they say.
func (n *Note) Write(headers map[string]string) {
	for name := range headers {
		if Ours(name) {
			delete(headers, name)
		}
	}
	put := func(name, value string) {
		if value != "" {
			headers[name] = value
		}
	}
	put(Retries, countText(n.Retries))
	put(Replays, countText(n.Replays))
	put(First, timeText(n.First))
	put(Queue, n.Queue)
	if len(n.Dropped) > 0 {
		names, _ := json.Marshal(n.Dropped) //nolint:errcheck,errchkjson // texts
		put(Dropped, string(names))
	}
	if l := &n.Death; l.Reason != "" {
		put(Reason, string(l.Reason))
		put(Detail, Cut(l.Detail, MaxDetail))
		put(Attempts, countText(l.Attempts))
		put(Last, timeText(l.Last))
		put(Consumer, l.Consumer)
		put(KeyHash, l.KeyHash)
	}
}

// Ours reports whether a header is one of ours.
func Ours(name string) bool { return strings.HasPrefix(name, Prefix) }

// count reads a count. Invalid text counts as 0.
func count(text string) int {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return 0
	}
	return int(n)
}

func countText(n int) string {
	if n <= 0 {
		return ""
	}
	return strconv.Itoa(min(n, math.MaxInt32))
}

// TimeText writes a time as all copies have it.
func TimeText(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return TimeText(t)
}

// ParseTime reads a time. Invalid text gives the zero time.
func ParseTime(text string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}
	}
	return Writable(t)
}

// Writable is a time that a text can have, in UTC, and the zero time for another: of a producer that sends milliseconds where seconds
// are meant, say, which is in a year of five digits.
func Writable(t time.Time) time.Time {
	t = t.UTC()
	if y := t.Year(); y < 1 || y > 9999 {
		return time.Time{}
	}
	return t
}

// Cut shortens a text to at most so many bytes, at the border of a character.
func Cut(text string, limit int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}
