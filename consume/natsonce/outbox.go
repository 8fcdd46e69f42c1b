package natsonce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"unicode"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume/internal/copies"
	"github.com/everonce/everonce/internal/envelope"
	"github.com/everonce/everonce/outbox"
)

// Publisher publishes the events of an outbox to subjects of JetStream. An event is published when a stream has
// confirmed it. It connects when it has something to publish, and again after a loss.
//
// A message has the event's ID in [jetstream.MsgIDHeader] and in ce-id: a stream drops a second copy within its
// duplicate window (2 minutes by default), and [consume.ProducerID] recognises a later one. It has the event's content
// type in Content-Type, its type, topic, key and time in ce-type, ce-source, ce-partitionkey and ce-time, unless the
// event has such a header, and the event's headers and payload. Values of ce-… are percent-encoded.
//
// It publishes up to 64 events concurrently, but only one at a time with the same key.
type Publisher struct {
	servers string
	opts    PublisherOptions

	mu     sync.Mutex
	conn   *connection
	closed bool
}

// PublisherOptions configure a publisher. The zero value of each field is its default.
type PublisherOptions struct {
	// Subject returns the subject of an event. Default: its topic.
	Subject func(*outbox.Event) string
	// Expect returns what is expected of the stream: its name, or its last sequence for the subject
	// ([jetstream.WithExpectStream], [jetstream.WithExpectLastSequencePerSubject]). An event for which the last sequence
	// differs is set aside, because a later try would fail too, unless the last message is the event itself. Default:
	// nothing.
	Expect func(*outbox.Event) []jetstream.PublishOpt
	// Connect are further options of the connection, as in [Options].
	Connect []nats.Option
	// Name is the name of the connection for operators. Default "outbox".
	Name string
	// Log gets losses of the connection as warnings. Default [slog.Default].
	Log *slog.Logger
}

// ErrUnroutable says that no stream has the subject of an event. It counts as a failure of the event, which is
// published again later.
var ErrUnroutable = errors.New("natsonce: no stream has the subject of the event (create a stream, or add the subject to one)")

// NewPublisher returns a publisher to the servers, given as for [Dial]. opts may be nil. It sends nothing. The error
// wraps [everonce.ErrInvalidArgument].
func NewPublisher(servers string, opts *PublisherOptions) (*Publisher, error) {
	var o PublisherOptions
	if opts != nil {
		o = *opts
	}
	if o.Subject == nil {
		o.Subject = func(e *outbox.Event) string { return e.Topic }
	}
	if o.Expect == nil {
		o.Expect = func(*outbox.Event) []jetstream.PublishOpt { return nil }
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	o.Name = cmp.Or(o.Name, "outbox")
	return &Publisher{servers: servers, opts: o}, checkURL(servers)
}

const onTheWay = 64

// Publish implements [outbox.Publisher]. [outbox.ErrUnavailable]: there is no connection, or the server does not
// answer or is short of space. [ErrUnroutable] and another stream than the expected one count as failures of the
// event. An event that the server would always refuse, for example as too large, is set aside.
func (p *Publisher) Publish(ctx context.Context, events []outbox.Event) []error {
	conn, err := p.connection(ctx)
	if err != nil {
		errs := make([]error, len(events))
		for i := range errs {
			errs[i] = fmt.Errorf("%w: %w", outbox.ErrUnavailable, err)
		}
		return errs
	}
	return outbox.One(onTheWay, func(ctx context.Context, e *outbox.Event) error {
		msg, err := p.message(e)
		if err != nil {
			return everonce.Permanent("refused", err, nil)
		}
		_, err = conn.js.PublishMsg(ctx, msg, append(p.opts.Expect(e), jetstream.WithMsgID(e.ID))...)
		return relayError(ctx, conn, msg.Subject, e.ID, err)
	}).Publish(ctx, events)
}

// connection returns the connection, and connects if needed. The client library reconnects after a loss.
func (p *Publisher) connection(ctx context.Context) (*connection, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nats.ErrConnectionClosed
	}
	if p.conn == nil || p.conn.IsClosed() {
		conn, err := connect(ctx, p.servers, p.opts.Name, p.opts.Log, p.opts.Connect...)
		if err != nil {
			return nil, err
		}
		p.conn = conn
	}
	return p.conn, nil
}

// Close closes the connection. Later calls of Publish fail.
func (p *Publisher) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.conn == nil {
		return nil
	}
	return p.conn.hangUp()
}

// message returns the message of an event.
func (p *Publisher) message(e *outbox.Event) (*nats.Msg, error) {
	msg := &nats.Msg{Subject: p.opts.Subject(e), Data: e.Payload, Header: nats.Header{"Content-Type": {e.ContentType}}}
	for name, value := range envelope.HTTP.Headers(envelope.Envelope{ID: e.ID, Type: e.Type, Source: e.Topic, Key: e.Key, Time: e.CreatedAt}) {
		msg.Header.Set(name, value)
	}
	if !isSubject(msg.Subject) {
		return nil, fmt.Errorf("natsonce: the subject of an event has an empty part, blanks or wildcards, more than %d bytes, or is the server's own", maxSubject)
	}
	for name, value := range e.Headers {
		if copies.Ours(name) || isInstruction(name) || name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == ':' || r >= 0x7f }) {
			return nil, fmt.Errorf("natsonce: the name of a header is not valid in NATS, or begins with %s or Nats-, which is not for producers", copies.Prefix)
		}
		if name != headerID {
			msg.Header.Set(name, value)
		}
	}
	for _, values := range msg.Header {
		if strings.ContainsAny(values[0]+e.ID, "\r\n") {
			return nil, errors.New("natsonce: the ID, the type or a header of an event has more than one line")
		}
	}
	return msg, nil
}

// maxSubject is the size of the longest subject, in bytes: a server ends the connection after a line of 4096 bytes,
// which contains more.
const maxSubject = 4000

// isSubject reports whether a message may be published to a subject. Messages to the server's own subjects are
// requests to the server.
func isSubject(s string) bool {
	return len(s) <= maxSubject && !strings.ContainsFunc(s, unicode.IsSpace) && !strings.ContainsAny(s, "*>") && !strings.Contains("."+s+".", "..") &&
		!strings.HasPrefix(s, "$JS.API.") && !strings.HasPrefix(s, "$SYS.")
}

// Codes of JetStream that are not plain refusals of a message.
const (
	codeHeaders, codeSequence, codeSequenceOfSome                = 10097, 10071, 10164
	codeStorage, codeResources, codeMemory, codeFull, codeStream = 10047, 10023, 10028, 10077, 10060
)

// relayError translates an answer of the server for the relay.
func relayError(ctx context.Context, conn *connection, subject, id string, err error) error {
	refusal, _ := errors.AsType[*jetstream.APIError](err)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, nats.ErrMaxPayload), refusal != nil && (refusal.ErrorCode == jetstream.JSErrCodeStreamMessageExceedsMaximum || refusal.ErrorCode == codeHeaders):
		return everonce.Permanent("too_large", err, nil)
	case refusal != nil && (refusal.ErrorCode == codeSequence || refusal.ErrorCode == codeSequenceOfSome):
		if last, unread := conn.lastID(ctx, subject); unread != nil || last == id {
			return unread
		}
		return everonce.Permanent("sequence", err, nil)
	case refusal != nil && refusal.ErrorCode == codeStream:
		return fmt.Errorf("natsonce: the subject belongs to another stream: %w", err)
	case errors.Is(err, nats.ErrBadSubject), errors.Is(err, jetstream.ErrInvalidSubject):
		return everonce.Permanent("refused", err, nil)
	case errors.Is(err, jetstream.ErrNoStreamResponse): // no stream, or one without a leader
		if _, unknown := conn.js.StreamNameBySubject(ctx, subject); errors.Is(unknown, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("%w: subject %q", ErrUnroutable, subject)
		}
	case refusal != nil:
		switch refusal.ErrorCode {
		case codeStorage, codeResources, codeMemory, codeFull:
		default:
			if refusal.Code < 500 {
				return err
			}
		}
	}
	return fmt.Errorf("%w: %w", outbox.ErrUnavailable, err)
}

// lastID returns the ID of the last message of a subject. The server compares sequences before IDs, so an event whose
// answer was lost fails on its own message.
func (c *connection) lastID(ctx context.Context, subject string) (string, error) {
	name, err := c.js.StreamNameBySubject(ctx, subject)
	if err != nil {
		return "", fmt.Errorf("%w: %w", outbox.ErrUnavailable, err)
	}
	stream, err := c.js.Stream(ctx, name)
	if err != nil {
		return "", fmt.Errorf("%w: %w", outbox.ErrUnavailable, err)
	}
	switch last, err := stream.GetLastMsgForSubject(ctx, subject); {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("%w: %w", outbox.ErrUnavailable, err)
	default:
		return last.Header.Get(jetstream.MsgIDHeader), nil
	}
}
