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

// Spec says what a consumer does with its messages, whose payload is a T (guarded mode). The zero value of each
// field that is not required is its default.
type Spec[T any] struct {
	// Consumer names who handles the messages. It is the scope of their keys, so that two consumers of one event
	// (mail and payment) never skip each other's work. Queue and topic do not count: a copy that comes through a
	// retry queue is the same operation. Required.
	Consumer string
	// Key finds the key. Required.
	Key Key
	// Handle handles a message. Its errors are as those of [everonce.Do]'s work: [everonce.Permanent] for a refusal
	// for good, [everonce.NotDone] if nothing took hold; for any other the policy for the unknown decides.
	// [everonce.AttemptFrom] finds the attempt in ctx. Required.
	Handle func(ctx context.Context, m *Message, v T) error

	// Decode reads the payload. Its error makes the message a dead letter. Default: JSON, without content encoding,
	// or one that changes nothing: identity, utf-8. A body null is an error unless a T can be that: a pointer, say.
	Decode func(*Message) (T, error)
	// MaxBody is the largest body that is read, in bytes. Default 16 MiB, 1 MiB if Fingerprint compares JSON.
	MaxBody int
	// Fingerprint says what is compared when a key is used again. Default: the body, byte for byte.
	Fingerprint Fingerprint
	// Lifetime is how long a handled message is remembered. Default [everonce.ForQueue].
	Lifetime everonce.Lifetime
	// Window is the longest time after which the channel may deliver a message again, including its stay among the
	// dead letters. A shorter Lifetime is refused. Default 7 days.
	Window time.Duration
	// Retry says when a message that failed comes again.
	Retry Backoff
	// DropRejected acknowledges what was refused for good. Default: it becomes a dead letter, at every delivery.
	DropRejected bool
	// Observe, if set, is called with every verdict. It must not block. A panic of it is logged, and changes nothing.
	// [Consumer.Serve] calls it in a goroutine of its own, which it may end.
	Observe func(context.Context, *Message, Verdict)

	// Policy and Reconcile are for messages whose outcome nobody knows. Default: the receiver's policy. Reconcile is
	// required if the policy is [everonce.Reconcile], and refused if it is another.
	Policy    everonce.Policy
	Reconcile func(context.Context, everonce.Abandoned) (everonce.Verdict[struct{}], error)
	// EffectsInSteps declares what [everonce.EffectsInSteps] declares.
	EffectsInSteps bool
}

// TxSpec says what a consumer does with its messages, whose payload is a T, in a transaction with which the record of
// the message commits (transactional mode). The zero value of each field that is not required is its default.
type TxSpec[T, Tx any] struct {
	// Consumer and Key are as in [Spec]. Required.
	Consumer string
	Key      Key
	// Handle handles a message: its writes through tx commit with the record. It may be called several times for one
	// delivery. Any error rolls back; [everonce.Permanent] is saved. Required.
	Handle func(ctx context.Context, tx Tx, m *Message, v T) error
	// HandleAll, if set, handles together those messages of a batch that have to be handled: by one statement, say.
	// Its error is the error of all of them; they are then handled in smaller batches, until the one that fails is
	// alone. Default: Handle, one after the other. With it Handle is not required.
	HandleAll func(ctx context.Context, tx Tx, batch []Received[T]) error

	// Decode reads the payload. Its error makes the message a dead letter. Default: JSON, without content encoding,
	// or one that changes nothing: identity, utf-8. A body null is an error unless a T can be that: a pointer, say.
	Decode func(*Message) (T, error)
	// MaxBody is the largest body that is read, in bytes. Default 16 MiB, 1 MiB if Fingerprint compares JSON.
	MaxBody int
	// Fingerprint says what is compared when a key is used again. Default: the body, byte for byte.
	Fingerprint Fingerprint
	// Lifetime is how long a handled message is remembered. Default [everonce.ForQueue].
	Lifetime everonce.Lifetime
	// Window is the longest time after which the channel may deliver a message again, including its stay among the
	// dead letters. A shorter Lifetime is refused. Default 7 days.
	Window time.Duration
	// Retry says when a message that failed comes again.
	Retry Backoff
	// DropRejected acknowledges what was refused for good. Default: it becomes a dead letter, at every delivery.
	DropRejected bool
	// Observe, if set, is called with every verdict. It must not block. A panic of it is logged, and changes nothing.
	// [Consumer.Serve] calls it in a goroutine of its own, which it may end.
	Observe func(context.Context, *Message, Verdict)
}

// common is what all specs say.
type common[T any] struct {
	Consumer     string
	Key          Key
	Decode       func(*Message) (T, error)
	MaxBody      int
	Fingerprint  Fingerprint
	Lifetime     everonce.Lifetime
	Window       time.Duration
	Retry        Backoff
	DropRejected bool
	Observe      func(context.Context, *Message, Verdict)
}

const (
	defaultWindow  = 7 * 24 * time.Hour
	defaultMaxBody = 16 << 20
	defaultMaxJSON = 1 << 20 // to compare it takes up to some 25 times its memory, and seconds
)

func (s *Spec[T]) common() common[T] {
	return common[T]{s.Consumer, s.Key, s.Decode, s.MaxBody, s.Fingerprint, s.Lifetime, s.Window, s.Retry, s.DropRejected, s.Observe}
}

func (s *TxSpec[T, Tx]) common() common[T] {
	return common[T]{s.Consumer, s.Key, s.Decode, s.MaxBody, s.Fingerprint, s.Lifetime, s.Window, s.Retry, s.DropRejected, s.Observe}
}

func (c common[T]) checked() (common[T], error) {
	switch {
	case c.Consumer == "":
		return c, fmt.Errorf("%w: a consumer must have a name: it is the scope of its keys", everonce.ErrInvalidArgument)
	case c.Key == nil:
		return c, fmt.Errorf("%w: the consumer's Key is nil: there is none, see consume.ProducerID, or no message could be told by it: a consume.JSONPointer begins with \"/\", a Header has a name, and a Composite or FirstOf has parts", everonce.ErrInvalidArgument)
	case c.MaxBody < 0 || c.Window < 0 || c.Retry.Min < 0 || c.Retry.Max < 0:
		return c, fmt.Errorf("%w: MaxBody, Window, Retry.Min and Retry.Max must not be negative", everonce.ErrInvalidArgument)
	}
	if c.Decode == nil {
		c.Decode = decodeJSON[T]
	}
	switch {
	case c.MaxBody != 0:
	case c.Fingerprint.comparesJSON():
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
		return c, fmt.Errorf("%w: the consumer's name can be no scope: %w", everonce.ErrInvalidArgument, err)
	}
	if err := c.Lifetime.Validate(); err != nil {
		return c, err
	}
	if c.Lifetime.Total() < c.Window {
		return c, fmt.Errorf("%w: the channel may deliver a message again after %v (Window), and it is remembered for %v only (Lifetime: retention + remember)",
			everonce.ErrInvalidArgument, c.Window, c.Lifetime.Total())
	}
	c.Retry = c.Retry.WithDefaults(10)
	return c, nil
}

// misfit says where a body does not fit, and quotes nothing of it: names and types are the program's.
func misfit(err error) error {
	const text = "consume: the body's JSON does not fit the payload"
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case !ok:
		return errors.New(text)
	case wrong.Field == "":
		return fmt.Errorf("%s: it is no %v", text, wrong.Type)
	}
	return fmt.Errorf("%s: %q is no %v", text, wrong.Field, wrong.Type)
}

// decodeJSON is the default of Decode.
func decodeJSON[T any](m *Message) (v T, err error) {
	switch strings.ToLower(m.ContentEncoding) {
	case "", "identity", "utf-8": // the last is a charset, that of all JSON, which Spring and Celery put here
	default:
		return v, fmt.Errorf("consume: the content encoding %q is not read", m.ContentEncoding)
	}
	if err := json.Unmarshal(m.Body, &v); err != nil {
		if _, ok := errors.AsType[*json.SyntaxError](err); ok {
			return v, errors.New("consume: the body is no JSON")
		}
		return v, misfit(err)
	}
	if t := reflect.TypeFor[T](); string(bytes.TrimSpace(m.Body)) == "null" && !canBeNull(t) { // to encoding/json that is the zero value
		return v, misfit(&json.UnmarshalTypeError{Value: "null", Type: t})
	}
	return v, nil
}

// canBeNull reports whether a null in JSON is a value of the type.
func canBeNull(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Interface:
		return true
	}
	return reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
}
