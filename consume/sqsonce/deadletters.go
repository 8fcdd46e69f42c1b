package sqsonce

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/everonce/everonce/consume"
)

// DeadLetters shows, replays and discards the dead letters of a queue. Its methods must not be called concurrently.
//
// SQS cannot show a message without delivering it: each method receives dead letters, and gives back the remaining
// ones when it is done. Meanwhile others do not see them; if its process is killed, or an answer is lost, for up to a
// minute. SQS delivers at most ten messages of a FIFO queue's group at a time: of dead letters that SQS itself has
// moved, a method sees the first ten of each group.
type DeadLetters struct {
	client      Client
	queue, dead *place
	envelope    Envelope
	places      map[string]*place // of replays, by name
}

var _ consume.DeadLetters = (*DeadLetters)(nil)

// DialDeadLetters looks up the queue and its dead-letter queue. The error is as for [Dial].
func DialDeadLetters(ctx context.Context, client Client, queue Queue) (*DeadLetters, error) {
	source, dead, err := findBoth(ctx, client, queue)
	if err != nil {
		return nil, err
	}
	return &DeadLetters{client: client, queue: source, dead: dead, envelope: queue.Envelope, places: map[string]*place{source.name: source}}, nil
}

// Close does nothing: the caller owns the client.
func (l *DeadLetters) Close() error { return nil }

// Consumers returns 1 if others seem to hold dead letters: SQS does not say who.
func (l *DeadLetters) Consumers(ctx context.Context) (int, error) {
	p, err := find(ctx, l.client, l.dead.url)
	if err != nil {
		return 0, err
	}
	return min(p.hidden, 1), nil
}

// All returns an iterator over the selected dead letters, and removes none. It ends with the first error.
func (l *DeadLetters) All(ctx context.Context, filter consume.Filter) iter.Seq2[consume.DeadLetter, error] {
	return func(yield func(consume.DeadLetter, error) bool) {
		err := l.each(ctx, filter, func(f *found) (bool, error) {
			if !yield(f.letter, nil) {
				return false, errEnough
			}
			return false, nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			yield(consume.DeadLetter{}, err)
		}
	}
}

var errEnough = errors.New("sqsonce: enough")

// Replay sends copies of the selected dead letters to their queues, with the original body and attributes, and the
// number of replays ([consume.DeadLetter].Replays). It deletes each dead letter once SQS has confirmed its copy. If
// the message was already handled, the copy is a duplicate. The error also names dead letters that were not replayed
// because their queue does not exist, or because they are too large for it. An interrupted replay may leave a dead
// letter beside its copy.
func (l *DeadLetters) Replay(ctx context.Context, filter consume.Filter) (replayed int, err error) {
	var stay error
	err = l.each(ctx, filter, func(f *found) (bool, error) {
		err := l.replay(ctx, f)
		if errors.Is(err, ErrTopology) || errors.Is(err, errTooLarge) || refusesMessage(err) {
			stay = errors.Join(stay, fmt.Errorf("sqsonce: dead letter %s was not replayed: %w", f.letter.ID, err))
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if err := l.remove(ctx, f); err != nil {
			return false, err
		}
		replayed++
		return true, nil
	})
	return replayed, errors.Join(err, stay)
}

func (l *DeadLetters) replay(ctx context.Context, f *found) error {
	to, err := l.placeOf(ctx, f.letter.Queue)
	if err != nil {
		return err
	}
	in, err := replayOf(f.raw, to, f.note)
	if err != nil {
		return err
	}
	_, err = l.client.SendMessage(ctx, in)
	if noQueue(err) {
		err = fmt.Errorf("%w: %w", ErrTopology, err)
	}
	return err
}

func (l *DeadLetters) placeOf(ctx context.Context, name string) (*place, error) {
	if p := l.places[name]; p != nil {
		return p, nil
	}
	p, err := find(ctx, l.client, name)
	if err == nil {
		l.places[name] = p
	}
	return p, err
}

// Discard deletes the selected dead letters and returns their number.
func (l *DeadLetters) Discard(ctx context.Context, filter consume.Filter) (discarded int, err error) {
	err = l.each(ctx, filter, func(f *found) (bool, error) {
		if err := l.remove(ctx, f); err != nil {
			return false, err
		}
		discarded++
		return true, nil
	})
	return discarded, err
}

func (l *DeadLetters) remove(ctx context.Context, f *found) error {
	_, err := l.client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: &l.dead.url, ReceiptHandle: f.raw.ReceiptHandle})
	return err
}

// found is a received dead letter.
type found struct {
	raw    *types.Message
	letter consume.DeadLetter
	note   note
}

const (
	lookVisibility = time.Minute      // also of dead letters whose answer was lost
	lookWait       = 1                // seconds: an immediate answer may leave out dead letters
	lookTimeout    = 30 * time.Second // for an answer: a connection may be half open
	lookBarren     = 5                // answers in a row without a new dead letter
)

// each receives dead letters, calls fn for the selected ones, and gives back the others. fn reports whether it has
// removed one.
func (l *DeadLetters) each(ctx context.Context, filter consume.Filter, fn func(*found) (removed bool, err error)) error {
	if err := filter.Validate(); err != nil {
		return err
	}
	start := time.Now()
	held := map[string]*string{} // receipts, by MessageId
	defer func() { l.giveBack(context.WithoutCancel(ctx), held) }()
	for meant, barren := 0, 0; ; {
		out, err := l.receive(ctx)
		if err != nil {
			return err
		}
		var these []*found
		for i := range out.Messages {
			raw := &out.Messages[i]
			if _, known := held[*raw.MessageId]; !known && !sent(raw).After(start) { // later ones may be replayed ones that failed again
				f := &found{raw: raw}
				f.letter, f.note = deadLetterOf(raw, l.queue.name, l.envelope)
				these = append(these, f)
			}
			held[*raw.MessageId] = raw.ReceiptHandle
		}
		if barren++; len(these) > 0 {
			barren = 0
		} else if done, err := l.seenAll(ctx, len(out.Messages), barren); done || err != nil {
			return err
		}
		for _, f := range these {
			if !filter.Matches(&f.letter) {
				continue
			}
			removed, err := fn(f)
			if removed {
				delete(held, *f.raw.MessageId)
			}
			if err != nil {
				return err
			}
			if meant++; meant == filter.Limit {
				return nil
			}
		}
	}
}

// receive receives dead letters, or none if SQS finds none.
func (l *DeadLetters) receive(ctx context.Context) (*sqs.ReceiveMessageOutput, error) {
	asking, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	out, err := l.client.ReceiveMessage(asking, &sqs.ReceiveMessageInput{
		QueueUrl: &l.dead.url, MaxNumberOfMessages: maxReceive, VisibilityTimeout: int32(lookVisibility.Seconds()), WaitTimeSeconds: lookWait,
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll}, MessageAttributeNames: []string{"All"},
	})
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, missing(ctx, l.dead.name, err)
	}
	return out, nil
}

// seenAll reports whether all dead letters were seen, after an answer without a new one. An empty answer alone does
// not show that: SQS may have more, according to its counters. Nor does an answer whose messages were sent after the
// start.
func (l *DeadLetters) seenAll(ctx context.Context, received, barren int) (bool, error) {
	if received > 0 || barren >= lookBarren {
		return barren >= lookBarren, nil
	}
	p, err := find(ctx, l.client, l.dead.url)
	return err == nil && p.visible == 0, err
}

// giveBack makes dead letters visible at once. If that fails, they are visible after lookVisibility.
func (l *DeadLetters) giveBack(ctx context.Context, held map[string]*string) {
	ctx, cancel := context.WithTimeout(ctx, lookVisibility)
	defer cancel()
	for _, handle := range held {
		//nolint:errcheck // it may have come to others meanwhile
		_, _ = l.client.ChangeMessageVisibility(ctx, &sqs.ChangeMessageVisibilityInput{QueueUrl: &l.dead.url, ReceiptHandle: handle, VisibilityTimeout: 0})
	}
}
