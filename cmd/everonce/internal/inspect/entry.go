package inspect

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/everonce/everonce/backlog"
	"github.com/everonce/everonce/saga"
)

// Entry is an event, a message or a saga as it is written in JSON. Times are the database's.
type Entry struct {
	Seq        int64     `json:"seq"`
	State      string    `json:"state"`
	ID         string    `json:"id"`
	Consumer   string    `json:"consumer,omitempty"`
	Topic      string    `json:"topic,omitempty"`
	Type       string    `json:"type,omitempty"`
	Definition string    `json:"definition,omitempty"`
	OrderKey   string    `json:"order_key,omitempty"`
	Attempts   int       `json:"attempts"`
	Created    time.Time `json:"created_at,omitzero"`
	Due        time.Time `json:"due_at,omitzero"`
	Done       time.Time `json:"done_at,omitzero"`
	Error      string    `json:"error,omitempty"`
	*Content
	*Saga
}

// Saga is how far a saga came.
type Saga struct {
	Status string      `json:"status"`
	Cause  string      `json:"cause,omitempty"`
	Orders []string    `json:"orders,omitempty"`
	Steps  []*SagaStep `json:"steps,omitempty"`
}

// SagaStep is an action, or a compensation. Output is set only if it was asked for.
type SagaStep struct {
	Name         string          `json:"name"`
	Compensation bool            `json:"compensation,omitempty"`
	State        string          `json:"state"`
	Tries        int             `json:"tries"`
	Error        string          `json:"error,omitempty"`
	Began        time.Time       `json:"began_at,omitzero"`
	Ended        time.Time       `json:"ended_at,omitzero"`
	Output       json.RawMessage `json:"output,omitempty"`
}

// SagaOf returns how far a saga came, with the outputs of its steps if they are asked for.
func SagaOf(s *saga.Saga, asked bool) *Saga {
	o := &Saga{Status: string(s.Status), Cause: s.Cause, Orders: slices.DeleteFunc(strings.Split(s.Orders, "\n"), func(order string) bool { return order == "" })}
	for _, step := range s.Steps {
		to := &SagaStep{Name: step.Name, Compensation: step.Compensation, State: step.State, Tries: step.Tries, Error: step.Error, Began: step.BeganAt, Ended: step.EndedAt}
		if asked && json.Valid(step.Output) {
			to.Output = step.Output
		}
		o.Steps = append(o.Steps, to)
	}
	return o
}

// Content is the content of an event or a message. Headers and Payload are set only if they were asked for;
// PayloadBase64 is set instead of Payload if the payload is not text.
type Content struct {
	Source        string            `json:"source,omitempty"`
	ContentType   string            `json:"content_type,omitempty"`
	Bytes         int               `json:"bytes"`
	Headers       map[string]string `json:"headers,omitempty"`
	Payload       *string           `json:"payload,omitempty"`
	PayloadBase64 *string           `json:"payload_base64,omitempty"`
}

// EntryOf returns an entry without its content. kind names what its kind is: "topic", "type" of a consumer's messages,
// or "definition".
func EntryOf(e *backlog.Entry, kind string) Entry {
	o := Entry{
		Seq: e.Seq, State: string(e.State), ID: e.ID, OrderKey: e.OrderKey, Attempts: e.Attempts,
		Created: e.CreatedAt, Due: e.DueAt, Done: e.DoneAt, Error: e.Error,
	}
	switch kind {
	case "topic":
		o.Topic = e.Kind
	case "type":
		o.Consumer, o.Type = e.Group, e.Kind
	case "definition":
		o.Definition = e.Kind
	}
	if e.State != backlog.Pending && e.State != backlog.InHand {
		o.Due = time.Time{}
	}
	return o
}

// ContentOf returns a content, with headers and payload if they are asked for.
func ContentOf(source, contentType string, headers map[string]string, payload []byte, asked bool) *Content {
	c := &Content{Source: source, ContentType: contentType, Bytes: len(payload)}
	if !asked {
		return c
	}
	c.Headers = headers
	body := string(payload)
	if utf8.ValidString(body) {
		c.Payload = &body
	} else {
		body = base64.StdEncoding.EncodeToString(payload)
		c.PayloadBase64 = &body
	}
	return c
}

// WriteEntries writes entries as a table.
func WriteEntries(out io.Writer, entries []Entry, kind string) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "SEQ\tSTATE\t%s\tID\tORDER KEY\tATTEMPTS\tCREATED\tERROR\n", strings.ToUpper(kind))
	for i := range entries {
		e := &entries[i]
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", e.Seq, e.State, printable(cmp.Or(e.Topic, e.Type, e.Definition)), printable(e.ID), printable(e.OrderKey), e.Attempts, e.Created.Format(time.RFC3339), printable(e.Error))
	}
	return w.Flush()
}

// WriteEntry writes one entry, a line for each thing that is known.
func WriteEntry(out io.Writer, e *Entry) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, printable(value))
		}
	}
	at := func(name string, t time.Time) {
		if !t.IsZero() {
			line(name, t.Format(time.RFC3339))
		}
	}
	line("seq", strconv.FormatInt(e.Seq, 10))
	line("state", e.State)
	line("id", e.ID)
	line("consumer", e.Consumer)
	line("topic", e.Topic)
	line("type", e.Type)
	line("definition", e.Definition)
	line("order key", e.OrderKey)
	line("attempts", strconv.Itoa(e.Attempts))
	at("created", e.Created)
	at("due", e.Due)
	at("done", e.Done)
	line("error", e.Error)
	if s := e.Saga; s != nil {
		line("status", s.Status)
		line("cause", s.Cause)
		line("orders", strings.Join(s.Orders, ", "))
		for _, step := range s.Steps {
			name := "step " + printable(step.Name)
			if step.Compensation {
				name = "compensation of " + printable(step.Name)
			}
			line(name, strings.Join(nonEmpty(step.State, fmt.Sprintf("tries %d", step.Tries), step.Error, string(step.Output)), ", "))
		}
	}
	if c := e.Content; c != nil {
		line("source", c.Source)
		line("content type", c.ContentType)
		line("bytes", strconv.Itoa(c.Bytes))
		for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
			line("header "+printable(name), c.Headers[name])
		}
		if c.Payload != nil {
			line("payload", *c.Payload)
		}
		if c.PayloadBase64 != nil {
			line("payload, base64", *c.PayloadBase64)
		}
	}
	return w.Flush()
}
