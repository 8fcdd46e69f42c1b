// Package copies reads and writes the headers of copies of messages: copies for a retry, dead letters, and replays.
// Their names begin with [Prefix]. Handlers do not see them.
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

// Prefix is the prefix of the names of these headers.
const Prefix = "x-everonce-"

// The headers of copies.
const (
	Retries = Prefix + "retries" // retries that count towards the limit
	First   = Prefix + "first"   // when it was first sent or first retried
	Queue   = Prefix + "queue"   // the queue or topic that it was consumed from
	Replays = Prefix + "replays" // replays of its dead letters
	Dropped = Prefix + "dropped" // names of headers that did not fit

	// On dead letters only.
	Reason    = Prefix + "reason"
	Detail    = Prefix + "detail"
	Attempts  = Prefix + "attempts"
	Last      = Prefix + "last"
	Consumer  = Prefix + "consumer"
	KeyHash   = Prefix + "key-hash"
	MessageID = Prefix + "message-id" // the producer's ID
)

// MaxDetail bounds the detail of a dead letter, in bytes.
const MaxDetail = 2048

// Note is the content of the headers of a copy, for brokers whose headers are text.
type Note struct {
	Retries, Replays int
	First            time.Time
	Queue            string
	Dropped          []string
	// Death says why the copy is a dead letter. Without a reason, the copy is not a dead letter.
	Death consume.Death
}

// Read reads the headers of a copy. It ignores invalid values.
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

// Write replaces the headers of copies by n.
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
		names, _ := json.Marshal(n.Dropped) //nolint:errcheck,errchkjson // strings always marshal
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

// Ours reports whether a header belongs to this package.
func Ours(name string) bool { return strings.HasPrefix(name, Prefix) }

// count parses a count. It returns 0 for invalid text.
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

// TimeText formats a time for a header.
func TimeText(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return TimeText(t)
}

// ParseTime parses a time. It returns the zero time for invalid text.
func ParseTime(text string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}
	}
	return Writable(t)
}

// Writable returns t in UTC, or the zero time if RFC 3339 cannot express it. A producer that sends milliseconds for
// seconds, for example, gives a year of five digits.
func Writable(t time.Time) time.Time {
	t = t.UTC()
	if y := t.Year(); y < 1 || y > 9999 {
		return time.Time{}
	}
	return t
}

// Cut shortens text to at most limit bytes, at a character boundary.
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
