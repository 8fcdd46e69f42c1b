// Package entries sends the events of an outbox by calls that take a few entries each and answer for each of them.
package entries

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/aws/smithy-go"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/outbox"
)

// Entry is an event as a service takes it.
type Entry[T any] struct {
	Is   T
	Size int // in bytes, as the service counts
}

// Limits are those of a call, and so of an entry too.
type Limits struct{ Entries, Bytes int }

// Call sends entries of one call, and returns an error for each. The second is one of the whole call.
type Call[T any] func(ctx context.Context, entries []T) ([]error, error)

// Publish sends events in order. entry makes an event an entry; one for which there is an error is set aside, and so is one that is too large.
// The entries of a call that is refused as a whole are sent one by one: the refusal may be for one of them.
func Publish[T any](ctx context.Context, events []outbox.Event, most Limits, entry func(*outbox.Event) (Entry[T], error), call Call[T]) []error {
	return outbox.InOrder(ctx, events, func(ctx context.Context, events []outbox.Event) []error {
		errs := make([]error, len(events))
		var part []T
		var at []int
		bytes := 0
		flush := func() {
			if len(part) > 0 {
				send(ctx, part, call, func(n int, err error) { errs[at[n]] = err })
			}
			part, at, bytes = nil, nil, 0
		}
		for i := range events {
			e, err := entry(&events[i])
			if payload := events[i].Payload; err == nil && (len(payload) == 0 || !utf8.Valid(payload)) {
				err = errors.New("sqsonce: the payload is empty or no UTF-8, which the service does not take (encode it, in base64 say)")
			}
			if err == nil && e.Size > most.Bytes {
				err = fmt.Errorf("sqsonce: the event has %d bytes, and the service takes %d", e.Size, most.Bytes)
			}
			if err != nil {
				errs[i] = everonce.Permanent("refused", err, nil)
				continue
			}
			if len(part) == most.Entries || bytes+e.Size > most.Bytes {
				flush()
			}
			part, at, bytes = append(part, e.Is), append(at, i), bytes+e.Size
		}
		flush()
		return errs
	})
}

// send sends entries in one call, and says of each what became of it.
func send[T any](ctx context.Context, part []T, call Call[T], answer func(n int, err error)) {
	answers, err := call(ctx, part)
	if err == nil {
		for n := range min(len(part), len(answers)) {
			answer(n, answers[n])
		}
		return
	}
	err = ofCall(err)
	_, refused := errors.AsType[*everonce.PermanentError](err)
	for n := range part {
		if refused && len(part) > 1 {
			send(ctx, part[n:n+1], call, func(_ int, err error) { answer(n, err) })
			continue
		}
		answer(n, err)
	}
}

// PublishTo is Publish for events of several destinations, each of which has calls of its own.
func PublishTo[T any](ctx context.Context, events []outbox.Event, most Limits, destination func(*outbox.Event) string,
	entry func(to string, e *outbox.Event) (Entry[T], error), call func(ctx context.Context, to string, entries []T) ([]error, error),
) []error {
	errs := make([]error, len(events))
	places := map[string][]int{}
	for i := range events {
		to := destination(&events[i])
		places[to] = append(places[to], i)
	}
	for to, at := range places {
		part := make([]outbox.Event, len(at))
		for n, i := range at {
			part[n] = events[i]
		}
		for n, err := range Publish(ctx, part, most,
			func(e *outbox.Event) (Entry[T], error) { return entry(to, e) },
			func(ctx context.Context, list []T) ([]error, error) { return call(ctx, to, list) }) {
			errs[at[n]] = err
		}
	}
	return errs
}

// Failed is the error of an entry that the service did not take: refused says that it never will.
func Failed(code, message string, refused bool) error {
	err := fmt.Errorf("sqsonce: the service did not take the event: %s: %s", code, message)
	if refused {
		return everonce.Permanent("refused", err, nil)
	}
	return err
}

// ErrMissing is the error of events whose destination does not exist: it counts, and they are tried again.
var ErrMissing = errors.New("sqsonce: the destination does not exist (create it, or check region and account)")

// ofCall says what the failure of a whole call means for its events, if there is only one.
func ofCall(err error) error {
	_, invalid := errors.AsType[smithy.InvalidParamsError](err)
	if _, unwritten := errors.AsType[*smithy.SerializationError](err); invalid || unwritten { // the client refuses them
		return everonce.Permanent("refused", err, nil)
	}
	e, _ := errors.AsType[smithy.APIError](err)
	if e == nil {
		return fmt.Errorf("%w: %w", outbox.ErrUnavailable, err)
	}
	code := e.ErrorCode()
	switch code = code[strings.LastIndex(code, "#")+1:]; code {
	case "QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue", "NotFound", "NotFoundException", "ResourceNotFoundException":
		return fmt.Errorf("%w: %w", ErrMissing, err)
	case "InvalidMessageContents", "InvalidParameterValue", "InvalidAttributeValue", "InvalidAddress", "InvalidParameter", "BatchRequestTooLong", "BatchRequestTooLongException", "ValidationException":
		return everonce.Permanent("refused", err, nil)
	}
	return fmt.Errorf("%w: %w", outbox.ErrUnavailable, err)
}

// MaxAttributes is how many attributes SQS allows a message.
const MaxAttributes = 10

// Attributes are the texts that say what an event is, by the name of a message attribute; an error where it does not fit.
// The event's own headers go before [AttributeEvent], which is left out where it would be one too many.
func Attributes(e *outbox.Event) (map[string]string, error) {
	all := map[string]string{AttributeID: e.ID, AttributeEvent: described(e)}
	if e.Type != "" {
		all[AttributeType] = e.Type
	}
	if e.ContentType != "" {
		all[AttributeContentType] = e.ContentType
	}
	for name, value := range e.Headers {
		if _, taken := all[name]; taken || name == "everonce-note" || value == "" {
			return nil, fmt.Errorf("sqsonce: the header %q is empty, or has a name that has a meaning", name)
		}
		all[name] = value
	}
	if len(all) > MaxAttributes {
		delete(all, AttributeEvent)
	}
	if len(all) > MaxAttributes {
		return nil, fmt.Errorf("sqsonce: the event has %d headers, and SQS allows %d attributes, of which its ID, type and content type are three", len(e.Headers), MaxAttributes)
	}
	return all, nil
}

// Size is what a payload and its attributes count.
func Size(payload []byte, attributes map[string]string) int {
	n := len(payload)
	for name, value := range attributes {
		n += len(name) + len(value) + len("String")
	}
	return n
}

// Those of SQS, and of SNS and EventBridge.
var (
	SQS    = Limits{Entries: 10, Bytes: 1 << 20}
	Others = Limits{Entries: 10, Bytes: 256 << 10}
)

// Valid is a text where SQS allows up to 128 letters, digits and signs: itself, or a hash of it.
func Valid(text string) string {
	plain := len(text) > 0 && len(text) <= 128 && strings.IndexFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
	if plain {
		return text
	}
	h := sha256.Sum256([]byte(text))
	return hex.EncodeToString(h[:])
}
