// Package entries sends the events of an outbox by calls that take a few entries and answer for each.
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

// Entry is an event in the form of a service.
type Entry[T any] struct {
	Is   T
	Size int // in bytes, as the service counts
}

// Limits are the limits of a call, and also of an entry.
type Limits struct{ Entries, Bytes int }

// Call sends entries in one call. It returns an error for each entry, and an error of the whole call.
type Call[T any] func(ctx context.Context, entries []T) ([]error, error)

// Publish sends events in order. entry converts an event; events for which it returns an error, or that are too large,
// are set aside. The entries of a call that is refused as a whole are sent one by one, because the refusal may be for
// one of them.
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
				err = errors.New("sqsonce: the payload is empty or not UTF-8, which the service does not accept (encode it, for example in base64)")
			}
			if err == nil && e.Size > most.Bytes {
				err = fmt.Errorf("sqsonce: the event has %d bytes, and the service accepts %d", e.Size, most.Bytes)
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

// send sends entries in one call, and calls answer with the result of each.
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

// PublishTo is Publish for events of several destinations, with separate calls for each destination.
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

// Failed returns the error of an entry that the service did not accept. refused says that it never will.
func Failed(code, message string, refused bool) error {
	err := fmt.Errorf("sqsonce: the service did not accept the event: %s: %s", code, message)
	if refused {
		return everonce.Permanent("refused", err, nil)
	}
	return err
}

// ErrMissing is the error of events whose destination does not exist. It counts as a failure of the events, which are
// published again later.
var ErrMissing = errors.New("sqsonce: the destination does not exist (create it, or check region and account)")

// ofCall returns the error of the only event of a call that failed as a whole.
func ofCall(err error) error {
	_, invalid := errors.AsType[smithy.InvalidParamsError](err)
	if _, unwritten := errors.AsType[*smithy.SerializationError](err); invalid || unwritten { // rejected by the client
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

// Attributes returns the message attributes of an event, by name, or an error if the event does not fit. Without room
// for ten, it leaves out [AttributeEvent] and keeps the event's headers.
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
			return nil, fmt.Errorf("sqsonce: the header %q is empty, or has a reserved name", name)
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

// Size returns the size of a payload and its attributes, as SQS counts it.
func Size(payload []byte, attributes map[string]string) int {
	n := len(payload)
	for name, value := range attributes {
		n += len(name) + len(value) + len("String")
	}
	return n
}

// Limits of SQS, SNS and EventBridge.
var (
	SQS    = Limits{Entries: 10, Bytes: 1 << 20}
	Others = Limits{Entries: 10, Bytes: 256 << 10}
)

// Valid returns text if SQS allows it as a name of up to 128 letters, digits and signs, or else a hash of it.
func Valid(text string) string {
	plain := len(text) > 0 && len(text) <= 128 && strings.IndexFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
	if plain {
		return text
	}
	h := sha256.Sum256([]byte(text))
	return hex.EncodeToString(h[:])
}
