package natsonce

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/internal/copies"
)

// DeadLetters shows, replays and discards the dead letters of a stream. Its methods must not be called concurrently.
// Reading a dead letter does not hide it from others. A call does not see dead letters that arrive after its start.
//
// A dead letter is replayed to the subject that it was published to. All consumers of that subject get the copy; to
// those that have handled the message it is a duplicate. If the stream has sources, or is a mirror, the copy goes to
// the stream that has the subject.
type DeadLetters struct {
	conn    *connection
	letters jetstream.Stream
	queue   Queue
	own     map[string]bool // streams that have their subjects themselves
}

var _ consume.DeadLetters = (*DeadLetters)(nil)

// DialDeadLetters connects to a server and checks that the stream of dead letters exists; it declares nothing. It uses
// queue.Stream and queue.DeadLetters. servers is as for [Dial], and opts may be nil. The error wraps
// [everonce.ErrInvalidArgument], [ErrUnreachable] or [ErrTopology].
func DialDeadLetters(ctx context.Context, servers string, queue Queue, opts *Options) (*DeadLetters, error) {
	q, err := queue.withDefaults("dead-letters")
	if err != nil {
		return nil, err
	}
	o, err := opts.withDefaults("dead letters", q.Stream)
	if err != nil {
		return nil, err
	}
	conn, err := connect(ctx, servers, o.Name, o.Workers.Log, o.Connect...)
	if err != nil {
		return nil, err
	}
	stream, err := conn.js.Stream(ctx, q.DeadLetters)
	if err != nil {
		conn.Close()
		return nil, topologyError("the stream of dead letters", q.DeadLetters, err)
	}
	return &DeadLetters{conn: conn, letters: stream, queue: q, own: map[string]bool{}}, nil
}

// Close closes the connection.
func (l *DeadLetters) Close() error { return l.conn.hangUp() }

// Consumers returns 0: JetStream does not hide dead letters.
func (l *DeadLetters) Consumers(context.Context) (int, error) { return 0, nil }

// All returns an iterator over the selected dead letters, and removes none. It ends with the first error.
func (l *DeadLetters) All(ctx context.Context, filter consume.Filter) iter.Seq2[consume.DeadLetter, error] {
	return func(yield func(consume.DeadLetter, error) bool) {
		for found, err := range l.each(ctx, filter) {
			if err != nil {
				yield(consume.DeadLetter{}, err)
				return
			}
			if !yield(found.DeadLetter, nil) {
				return
			}
		}
	}
}

// Replay publishes copies of the selected dead letters to their subjects, with the original headers, and the number of
// replays ([consume.DeadLetter.Replays]). A copy has a new ID in [jetstream.MsgIDHeader], because the stream would
// drop a known one; a handler sees the original ID. Replay removes each dead letter once its copy is stored. A replay
// that is interrupted in between, and repeated within the stream's duplicate window, stores no second copy. Replay
// returns the number of replayed dead letters. The error also names dead letters that no stream accepts; they are not
// removed.
func (l *DeadLetters) Replay(ctx context.Context, filter consume.Filter) (replayed int, err error) {
	var stay error
	for found, err := range l.each(ctx, filter) {
		if err == nil {
			err = l.replay(ctx, found)
		}
		switch {
		case errors.Is(err, errNotReplayed):
			stay = errors.Join(stay, err)
			continue
		case err == nil:
			err = l.remove(ctx, found)
		}
		if err != nil {
			return replayed, errors.Join(err, stay)
		}
		replayed++
	}
	return replayed, stay
}

var errNotReplayed = errors.New("natsonce: a dead letter was not replayed")

func (l *DeadLetters) replay(ctx context.Context, found *letter) error {
	msg := replayCopy(found.raw, l.conn.MaxPayload())
	if msg.Subject == "" {
		return fmt.Errorf("%w: %s: it does not say where it came from", errNotReplayed, found.ID)
	}
	options := []jetstream.PublishOpt{
		jetstream.WithMsgID(fmt.Sprintf("%s.%d-%d", l.queue.DeadLetters, found.raw.Sequence, found.raw.Time.UnixNano())),
	}
	own, err := l.ownSubjects(ctx, found.Queue)
	if err != nil {
		return err
	}
	if own {
		options = append(options, jetstream.WithExpectStream(found.Queue))
	}
	_, err = l.conn.js.PublishMsg(ctx, msg, options...)
	if _, ok := errors.AsType[*jetstream.APIError](err); ok || errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, nats.ErrMaxPayload) {
		return fmt.Errorf("%w: %s: stream %q, subject %q: %w", errNotReplayed, found.ID, found.Queue, msg.Subject, err)
	}
	return err
}

// ownSubjects reports whether the stream must receive what is published to the subjects of its messages.
func (l *DeadLetters) ownSubjects(ctx context.Context, name string) (bool, error) {
	if own, known := l.own[name]; known {
		return own, nil
	}
	stream, err := l.conn.js.Stream(ctx, name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrInvalidStreamName), errors.Is(err, jetstream.ErrStreamNameRequired):
		return true, nil // so that the dead letter is kept
	case err != nil:
		return false, topologyError("the stream", name, err)
	}
	c := stream.CachedInfo().Config
	l.own[name] = c.Mirror == nil && len(c.Sources) == 0
	return l.own[name], nil
}

// Discard deletes the selected dead letters and returns their number.
func (l *DeadLetters) Discard(ctx context.Context, filter consume.Filter) (discarded int, err error) {
	for found, err := range l.each(ctx, filter) {
		if err == nil {
			err = l.remove(ctx, found)
		}
		if err != nil {
			return discarded, err
		}
		discarded++
	}
	return discarded, nil
}

// remove deletes a dead letter. It is no error if the dead letter is already gone.
func (l *DeadLetters) remove(ctx context.Context, found *letter) error {
	err := l.letters.DeleteMsg(ctx, found.raw.Sequence)
	if err == nil {
		return nil
	}
	if _, gone := l.letters.GetMsg(ctx, found.raw.Sequence); errors.Is(gone, jetstream.ErrMsgNotFound) {
		return nil
	}
	return fmt.Errorf("natsonce: removing a dead letter: %w", err)
}

// letter is a dead letter with its stored message.
type letter struct {
	consume.DeadLetter
	raw *jetstream.RawStreamMsg
}

// each reads the dead letters that exist when it begins, one by one. It skips those that are deleted meanwhile.
func (l *DeadLetters) each(ctx context.Context, filter consume.Filter) iter.Seq2[*letter, error] {
	return func(yield func(*letter, error) bool) {
		if err := filter.Validate(); err != nil {
			yield(nil, err)
			return
		}
		info, err := l.letters.Info(ctx)
		if err != nil {
			yield(nil, topologyError("the stream of dead letters", l.queue.DeadLetters, err))
			return
		}
		meant := 0
		for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
			raw, err := l.letters.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(">"))
			switch {
			case errors.Is(err, jetstream.ErrMsgNotFound) || err == nil && raw.Sequence > info.State.LastSeq:
				return
			case err != nil:
				yield(nil, fmt.Errorf("natsonce: reading the dead letters: %w", err))
				return
			}
			seq = raw.Sequence
			found := deadLetterOf(raw)
			if !filter.Matches(&found.DeadLetter) {
				continue
			}
			if !yield(found, nil) {
				return
			}
			if meant++; meant == filter.Limit {
				return
			}
		}
	}
}

// deadLetterOf reads a dead letter.
func deadLetterOf(raw *jetstream.RawStreamMsg) *letter {
	m := readMessage(raw.Header, raw.Data)
	note := copies.Read(textHeaders(raw.Header, copies.Ours))
	m.Source, m.Subject = note.Queue, raw.Header.Get(headerSubject)
	l := consume.DeadLetter{Death: note.Death, Message: m, Queue: note.Queue, Replays: note.Replays}
	if l.Last.IsZero() {
		l.Last = copies.Writable(raw.Time)
	}
	sent := textHeaders(raw.Header, func(name string) bool { return !copies.Ours(name) && !isInstruction(name) })
	l.ID = copies.DeadLetterID(&l, sent, []byte(m.Headers[jetstream.MsgIDHeader]), raw.Data)
	return &letter{l, raw}
}
