package sqsonce

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/everonce/everonce/consume/internal/copies"
	"github.com/everonce/everonce/consume/sqsonce/internal/entries"
)

// attributeNote is the one attribute for all that a copy must say: SQS allows ten.
const attributeNote = "everonce-note"

// note is the content of the note of a dead letter or a replay.
type note struct {
	copies.Note
	// Group and Deduplication are the group and deduplication ID that the producer set, in a FIFO queue.
	Group, Deduplication string
}

// noteText is the JSON form of a note.
type noteText struct {
	Headers       map[string]string `json:"headers"`
	Group         string            `json:"group,omitempty"`
	Deduplication string            `json:"deduplication,omitempty"`
	// Attributes are attributes of the message for which the note left no room.
	Attributes map[string]attribute `json:"attributes,omitempty"`
}

type attribute struct {
	Type   string `json:"type"`
	Text   string `json:"text,omitempty"`
	Binary []byte `json:"binary,omitempty"`
}

// readNote reads the note of a message, and returns the producer's attributes.
func readNote(all map[string]types.MessageAttributeValue) (note, map[string]types.MessageAttributeValue) {
	theirs := maps.Clone(all)
	if theirs == nil {
		theirs = map[string]types.MessageAttributeValue{}
	}
	delete(theirs, attributeNote)
	var text noteText
	if json.Unmarshal([]byte(aws.ToString(all[attributeNote].StringValue)), &text) != nil {
		return note{}, theirs
	}
	for name, a := range text.Attributes {
		v := types.MessageAttributeValue{DataType: aws.String(a.Type), BinaryValue: a.Binary}
		if a.Text != "" {
			v.StringValue = aws.String(a.Text)
		}
		theirs[name] = v
	}
	return note{copies.Read(text.Headers), text.Group, text.Deduplication}, theirs
}

var errTooLarge = errors.New("sqsonce: the message is too large for a copy of it with a note")

// attributes returns the attributes of a copy: the producer's and the note, in at most room bytes. It leaves out the
// detail if it does not fit, and then the whole note: a copy without a note is better than none.
func (n *note) attributes(theirs map[string]types.MessageAttributeValue, room int) (map[string]types.MessageAttributeValue, error) {
	text := noteText{Headers: map[string]string{}, Group: n.Group, Deduplication: n.Deduplication}
	n.Write(text.Headers)
	all := maps.Clone(theirs)
	for _, name := range slices.Sorted(maps.Keys(all))[min(len(all), entries.MaxAttributes-1):] {
		a := all[name]
		if text.Attributes == nil {
			text.Attributes = map[string]attribute{}
		}
		text.Attributes[name] = attribute{aws.ToString(a.DataType), aws.ToString(a.StringValue), a.BinaryValue}
		delete(all, name)
	}
	for range 2 {
		all[attributeNote] = types.MessageAttributeValue{DataType: aws.String("String"), StringValue: aws.String(text.String())}
		if size(all) <= room {
			return all, nil
		}
		delete(text.Headers, copies.Detail)
	}
	if size(theirs) <= room {
		return theirs, nil
	}
	return nil, errTooLarge
}

func (t *noteText) String() string {
	b, _ := json.Marshal(t) //nolint:errcheck,errchkjson // strings and bytes always marshal
	return strings.Map(func(r rune) rune {
		if r == 0xFFFE || r == 0xFFFF { // SQS refuses these
			return 0xFFFD
		}
		return r
	}, string(b))
}

// size returns the size of attributes, as SQS counts it.
func size(attributes map[string]types.MessageAttributeValue) (n int) {
	for name, a := range attributes {
		n += len(name) + len(aws.ToString(a.DataType)) + len(aws.ToString(a.StringValue)) + len(a.BinaryValue)
	}
	return n
}
