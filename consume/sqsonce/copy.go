package sqsonce

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/internal/copies"
	"github.com/everonce/everonce/consume/sqsonce/internal/entries"
)

// MaxReceives is the reason of a dead letter that SQS itself has moved, by the queue's RedrivePolicy.
const MaxReceives consume.Reason = "broker_max_receive_count"

// deadLetterFor returns the dead letter of a message: a copy of it with a note.
func deadLetterFor(d *delivery, letter *consume.Death) (*sqs.SendMessageInput, error) {
	n := d.note
	n.Retries, n.Queue, n.First, n.Death = 0, d.c.queue.name, letter.First, *letter
	if n.Group == "" {
		n.Group = d.raw.Attributes["MessageGroupId"]
	}
	if n.Deduplication == "" {
		n.Deduplication = d.raw.Attributes["MessageDeduplicationId"]
	}
	return copyFor(&d.raw, d.c.dead, &n, "dead-"+*d.raw.MessageId, "dead-"+*d.raw.MessageId)
}

// copyFor returns a copy of a message for a queue. In a FIFO queue it has a group and a new deduplication ID: SQS
// would drop a copy with the original's within five minutes.
func copyFor(raw *types.Message, to *place, n *note, group, deduplication string) (*sqs.SendMessageInput, error) {
	_, theirs := readNote(raw.MessageAttributes)
	attributes, err := n.attributes(theirs, to.maxSize-len(aws.ToString(raw.Body)))
	if err != nil {
		return nil, err
	}
	in := &sqs.SendMessageInput{QueueUrl: &to.url, MessageBody: raw.Body, MessageAttributes: attributes}
	if to.fifo() {
		in.MessageGroupId, in.MessageDeduplicationId = &group, &deduplication
	}
	return in, nil
}

// deadLetterOf reads a dead letter, which this package sent or SQS moved. queue is where it came from if it does not
// say.
func deadLetterOf(raw *types.Message, queue string, envelope Envelope) (consume.DeadLetter, note) {
	m, n := messageOf(raw, queue)
	headers := m.Headers
	_ = envelope.unwrap(m) //nolint:errcheck // it is shown unchanged
	if n.Group == "" {
		n.Group = raw.Attributes["MessageGroupId"]
	}
	m.Retries, m.Deliveries, m.Redelivered = 0, 0, false // these would count deliveries of the dead letter
	l := consume.DeadLetter{Death: n.Death, Message: m, Queue: queue, Replays: n.Replays}
	if n.Queue != "" {
		l.Queue = n.Queue
	}
	if arn := raw.Attributes["DeadLetterQueueSourceArn"]; arn != "" { // SQS has moved it: a note is older, or forged
		l.Queue, l.Death = arn[strings.LastIndex(arn, ":")+1:], consume.Death{}
	}
	if l.Reason == "" {
		l.Reason, l.Last = MaxReceives, sent(raw)
		l.Detail = fmt.Sprintf("SQS has moved it out of the queue %q: it was received too often", l.Queue) // part of the ID: never change it
	}
	m.Source, l.Source, l.First = l.Queue, l.Queue, m.First
	l.ID = copies.DeadLetterID(&l, headers, []byte(*raw.MessageId), []byte(aws.ToString(raw.Body)))
	return l, n
}

// replayOf returns a copy of a dead letter for its queue. The deduplication ID is the same if a lost answer makes it
// be sent again.
func replayOf(raw *types.Message, to *place, n note) (*sqs.SendMessageInput, error) {
	first := n.First
	if first.IsZero() {
		first = sent(raw)
	}
	again := note{copies.Note{Replays: n.Replays + 1, First: first}, n.Group, n.Deduplication}
	if n.Deduplication == "" {
		again.Deduplication = raw.Attributes["MessageDeduplicationId"]
	}
	name := "replay-" + *raw.MessageId
	group := entries.Valid(cmp.Or(n.Group, name)) // a note may be forged
	in, err := copyFor(raw, to, &again, group, name)
	if err == nil && n.Group != "" { // a standard queue may have groups too (fair queues)
		in.MessageGroupId = &group
	}
	return in, err
}
