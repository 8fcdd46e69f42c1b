// Package deadletters writes dead letters for people and as JSON.
package deadletters

import (
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/everonce/everonce/consume"
)

// DeadLetter is a dead letter as JSON.
type DeadLetter struct {
	ID       string     `json:"id"`
	Reason   string     `json:"reason"`
	Detail   string     `json:"detail,omitempty"`
	KeyHash  string     `json:"key_hash,omitempty"`
	Consumer string     `json:"consumer,omitempty"`
	Queue    string     `json:"queue"`
	Subject  string     `json:"routing_key,omitempty"`
	Attempts int        `json:"attempts"`
	Replays  int        `json:"replays,omitempty"`
	First    *time.Time `json:"first,omitempty"`
	Last     *time.Time `json:"last,omitempty"`
	Bytes    int        `json:"bytes"`

	// The message, where it was asked for. BodyBase64 is set in place of Body where that is no text.
	MessageID   string            `json:"message_id,omitempty"`
	ContentType string            `json:"content_type,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	OddHeaders  []string          `json:"odd_headers,omitempty"`
	Body        *string           `json:"body,omitempty"`
	BodyBase64  *string           `json:"body_base64,omitempty"`
}

// Of returns a letter, with its message if data is set.
func Of(l *consume.DeadLetter, data bool) DeadLetter {
	m := l.Message
	o := DeadLetter{
		ID: l.ID, Reason: string(l.Reason), Detail: l.Detail, KeyHash: l.KeyHash, Consumer: l.Consumer, Queue: l.Queue, Subject: m.Subject,
		Attempts: l.Attempts, Replays: l.Replays, First: timeOf(l.First), Last: timeOf(l.Last), Bytes: len(m.Body),
	}
	if !data {
		return o
	}
	o.MessageID, o.ContentType, o.Headers, o.OddHeaders = m.ID, m.ContentType, m.Headers, m.OmittedHeaders
	body := string(m.Body)
	if utf8.ValidString(body) {
		o.Body = &body
	} else {
		body = base64.StdEncoding.EncodeToString(m.Body)
		o.BodyBase64 = &body
	}
	return o
}

func timeOf(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC().Truncate(time.Second)
	return &t
}

// oneLine makes a text of strangers harmless for a terminal.
func oneLine(s string, limit int) string {
	q := strconv.Quote(s)
	q = strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
	if r := []rune(q); len(r) > limit {
		return string(r[:limit]) + "…"
	}
	return q
}

func timeText(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.Format(time.RFC3339)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// WriteCount writes how many there are for each reason, and in all.
func WriteCount(w io.Writer, all int, reasons map[string]int) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, name := range slices.Sorted(maps.Keys(reasons)) {
		fmt.Fprintf(t, "%s\t%d\n", oneLine(orDash(name), 40), reasons[name])
	}
	fmt.Fprintf(t, "all\t%d\n", all)
	return t.Flush()
}

// WriteList writes one line for each.
func WriteList(w io.Writer, all []DeadLetter) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "LETTER\tREASON\tKEY\tATTEMPTS\tREPLAYS\tLAST\tQUEUE\tDETAIL")
	for i := range all {
		l := &all[i]
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%s\t%s\t%s\n", l.ID, oneLine(orDash(l.Reason), 40), oneLine(orDash(l.KeyHash), 40), l.Attempts, l.Replays, timeText(l.Last), oneLine(l.Queue, 60), oneLine(l.Detail, 100))
	}
	return t.Flush()
}

// Write writes everything known about each letter.
func Write(w io.Writer, all []DeadLetter) error {
	for i := range all {
		l := &all[i]
		if i > 0 {
			fmt.Fprintln(w)
		}
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		line := func(name, value string) {
			if value != "" {
				fmt.Fprintf(t, "%s\t%s\n", name, oneLine(value, 4000))
			}
		}
		line("letter", l.ID)
		line("reason", l.Reason)
		line("detail", l.Detail)
		line("key", orDash(l.KeyHash))
		line("consumer", l.Consumer)
		line("queue", l.Queue)
		line("routing key", l.Subject)
		line("attempts", strconv.Itoa(l.Attempts))
		line("replays", strconv.Itoa(l.Replays))
		line("first", timeText(l.First))
		line("last", timeText(l.Last))
		line("bytes", strconv.Itoa(l.Bytes))
		line("message id", l.MessageID)
		line("content type", l.ContentType)
		for _, name := range slices.Sorted(maps.Keys(l.Headers)) {
			line("header "+oneLine(name, 80), l.Headers[name])
		}
		line("odd headers", strings.Join(l.OddHeaders, ", "))
		if l.Body != nil {
			line("body", *l.Body)
		}
		if l.BodyBase64 != nil {
			line("body, base64", *l.BodyBase64)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	return nil
}
