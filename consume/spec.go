package consume

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/everonce/everonce"
)

// Spec configures a consumer of messages with payload T (guarded mode). The zero value of each field that is not
// required is its default.
type Spec[T any] struct {
	// Consumer is the name of the consumer. It is the scope of the keys, so that two consumers of one event (mail and
	// payment) do not skip each other's work. The queue or topic is not part of the key: a copy that comes through a retry
	// queue is the same operation. Required.
	Consumer string
	// Key returns the key of a message. Required.
	Key Key
	// Handle handles a message. Its errors have the same meaning as those returned by the work of [everonce.Do]:
	// [everonce.Permanent] rejects the message, [everonce.NotDone] says that nothing happened; after any other error the
	// policy decides. [everonce.AttemptFrom] returns the attempt. Required.
	Handle func(ctx context.Context, m *Message, v T) error

	// Decode reads the payload. If it fails, the message becomes a dead letter. Default: JSON, with no content encoding
	// (or identity, or utf-8). The body null is an error unless T can be nil, like a pointer.
	Decode func(*Message) (T, error)
	// MaxBody limits the body, in bytes. Default 16 MiB, 1 MiB if Compare compares JSON.
	MaxBody int
	// Compare selects what is compared when a key is used again. Default: the body, byte for byte.
	Compare Compare
	// Lifetime is how long a handled message is remembered. Default [everonce.ForQueue].
	Lifetime everonce.Lifetime
	// Window is the longest time after which the broker may deliver a message again, including its time as a dead letter.
	// A Lifetime shorter than that is an error. Default 7 days.
	Window time.Duration
	// Retry says when a failed message is retried.
	Retry RetryPolicy
	// DropRejected acknowledges rejected messages. Default: they become dead letters, at every delivery.
	DropRejected bool
	// Context, if set, returns the context for the handler and for Observe, for example with the trace that the message
	// carries. It is called first. A panic is logged and has no other effect.
	Context func(context.Context, *Message) context.Context
	// Observe, if set, is called with every decision. If the broker accepts no copy of a message for a retry
	// ([ErrNoCopy]), it is called once more, after Context, with the decision to set the message aside. It is also called
	// for the dead letters that adapters make without a handler: at NATS' delivery limit, and for SQS' messages outside
	// their envelope. It must not block. A panic is logged and has no other effect. It runs in a separate goroutine, so
	// it may call [runtime.Goexit].
	Observe func(context.Context, *Message, Decision)

	// Policy decides about messages whose outcome is unknown. Default: the receiver's policy. Reconcile is required if
	// the policy is [everonce.Reconcile], and an error otherwise.
	Policy    everonce.Policy
	Reconcile func(context.Context, everonce.Abandoned) (everonce.Verdict[struct{}], error)
	// EffectsInSteps is the option [everonce.EffectsInSteps].
	EffectsInSteps bool
}

// TxSpec configures a consumer of messages with payload T that handles each in the transaction that commits its record
// (transactional mode). The zero value of each field that is not required is its default.
type TxSpec[T, Tx any] struct {
	// Consumer and Key are as in [Spec]. Required.
	Consumer string
	Key      Key
	// Handle handles a message. Its writes through tx commit with the record. It may be called several times for one
	// delivery. Any error rolls back; [everonce.Permanent] is recorded. Required. With HandleAll it may be nil.
	Handle func(ctx context.Context, tx Tx, m *Message, v T) error
	// HandleAll, if set, handles the new messages of a batch together, for example with one statement. If it fails, they
	// are handled in smaller batches, until the message that fails is alone. Default: Handle, one after the other.
	HandleAll func(ctx context.Context, tx Tx, batch []Received[T]) error
	// Offsets, if set, stores how far the consumer has come in each transaction, beside the effects. Use the
	// implementation of the adapter that delivers the messages, such as kafkaonce.Offsets.
	Offsets Offsets[Tx]

	// Decode reads the payload. If it fails, the message becomes a dead letter. Default: JSON, with no content encoding
	// (or identity, or utf-8). The body null is an error unless T can be nil, like a pointer.
	Decode func(*Message) (T, error)
	// MaxBody limits the body, in bytes. Default 16 MiB, 1 MiB if Compare compares JSON.
	MaxBody int
	// Compare selects what is compared when a key is used again. Default: the body, byte for byte.
	Compare Compare
	// Lifetime is how long a handled message is remembered. Default [everonce.ForQueue].
	Lifetime everonce.Lifetime
	// Window is the longest time after which the broker may deliver a message again, including its time as a dead letter.
	// A Lifetime shorter than that is an error. Default 7 days.
	Window time.Duration
	// Retry says when a failed message is retried.
	Retry RetryPolicy
	// DropRejected acknowledges rejected messages. Default: they become dead letters, at every delivery.
	DropRejected bool
	// Context, if set, returns the context for the handler and for Observe, for example with the trace that the message
	// carries. It is called first. A panic is logged and has no other effect.
	Context func(context.Context, *Message) context.Context
	// Observe, if set, is called as [Spec].Observe is.
	Observe func(context.Context, *Message, Decision)
}

// common has the fields that all specs have.
type common[T any] struct {
	Consumer     string
	Key          Key
	Decode       func(*Message) (T, error)
	MaxBody      int
	Compare      Compare
	Lifetime     everonce.Lifetime
	Window       time.Duration
	Retry        RetryPolicy
	DropRejected bool
	Context      func(context.Context, *Message) context.Context
	Observe      func(context.Context, *Message, Decision)
}

const (
	defaultWindow  = 7 * 24 * time.Hour
	defaultMaxBody = 16 << 20
	defaultMaxJSON = 1 << 20 // a comparison takes up to 25 times its memory, and seconds
)

func (s *Spec[T]) common() common[T] {
	return common[T]{s.Consumer, s.Key, s.Decode, s.MaxBody, s.Compare, s.Lifetime, s.Window, s.Retry, s.DropRejected, s.Context, s.Observe}
}

func (s *TxSpec[T, Tx]) common() common[T] {
	return common[T]{s.Consumer, s.Key, s.Decode, s.MaxBody, s.Compare, s.Lifetime, s.Window, s.Retry, s.DropRejected, s.Context, s.Observe}
}

func (c common[T]) withDefaults() (common[T], error) {
	switch {
	case c.Consumer == "":
		return c, fmt.Errorf("%w: consume: Consumer is required (it is the scope of the keys)", everonce.ErrInvalidArgument)
	case c.Key == nil:
		return c, fmt.Errorf("%w: consume: Key is required (see ProducerID; a JSONPointer that does not begin with \"/\", a Header without a name, and a Composite or FirstOf without parts are nil)", everonce.ErrInvalidArgument)
	case c.MaxBody < 0 || c.Window < 0 || c.Retry.Min < 0 || c.Retry.Max < 0:
		return c, fmt.Errorf("%w: consume: MaxBody, Window, Retry.Min and Retry.Max must not be negative", everonce.ErrInvalidArgument)
	}
	if c.Decode == nil {
		c.Decode = decodeJSON[T]
	}
	switch {
	case c.MaxBody != 0:
	case c.Compare.comparesJSON():
		c.MaxBody = defaultMaxJSON
	default:
		c.MaxBody = defaultMaxBody
	}
	if c.Window == 0 {
		c.Window = defaultWindow
	}
	if c.Lifetime == (everonce.Lifetime{}) {
		c.Lifetime = everonce.ForQueue()
	}
	if err := everonce.ScopeOf(c.Consumer).Validate(); err != nil {
		return c, fmt.Errorf("%w: consume: Consumer cannot be a scope: %w", everonce.ErrInvalidArgument, err)
	}
	if err := c.Lifetime.Validate(); err != nil {
		return c, err
	}
	if c.Lifetime.Total() < c.Window {
		return c, fmt.Errorf("%w: consume: a message may be delivered again after %v (Window), but is remembered for %v only (make Lifetime longer, retention + remember)",
			everonce.ErrInvalidArgument, c.Window, c.Lifetime.Total())
	}
	c.Retry = c.Retry.WithDefaults(10)
	return c, nil
}

// misfit says which field of a body does not match its type. It quotes nothing of the body: names and types are the
// program's.
func misfit(err error) error {
	const text = "consume: the body does not match the payload's type"
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case !ok:
		return errors.New(text)
	case wrong.Field == "":
		return fmt.Errorf("%s: it is not a %v", text, wrong.Type)
	}
	return fmt.Errorf("%s: %q is not a %v", text, wrong.Field, wrong.Type)
}

// decodeJSON is the default of Decode.
func decodeJSON[T any](m *Message) (v T, err error) {
	switch strings.ToLower(m.ContentEncoding) {
	case "", "identity", "utf-8": // utf-8 is a charset and no encoding, but Spring and Celery put it here
	default:
		return v, fmt.Errorf("consume: unknown content encoding %q (set Decode to read it)", m.ContentEncoding)
	}
	if err := json.Unmarshal(m.Body, &v); err != nil {
		if _, ok := errors.AsType[*json.SyntaxError](err); ok {
			return v, errors.New("consume: the body is not JSON")
		}
		return v, misfit(err)
	}
	if t := reflect.TypeFor[T](); string(bytes.TrimSpace(m.Body)) == "null" && !canBeNull(t) { // encoding/json would return the zero value
		return v, misfit(&json.UnmarshalTypeError{Value: "null", Type: t})
	}
	return v, nil
}

// canBeNull reports whether JSON null is a value of t.
func canBeNull(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Interface:
		return true
	}
	return reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
}
