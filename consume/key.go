package consume

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Key finds the key of a message: the name of the one effect that it asks for, however often and whichever way it
// comes. The error wraps [ErrNoKey] and quotes nothing of the message. A Key is nil if no message can have such a
// key, or if all would have the same; so is any Key made from it. A consumer's constructor refuses a nil Key.
type Key func(*Message) (string, error)

// unusable reports whether a key that is made of these would name no message, or all of them.
func unusable(keys []Key) bool {
	return len(keys) == 0 || slices.ContainsFunc(keys, func(k Key) bool { return k == nil })
}

// ErrNoKey says that a message has no key that can be used.
var ErrNoKey = errors.New("consume: no key")

func noKey(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrNoKey, fmt.Sprintf(format, args...))
}

// ProducerID takes the ID that the producer gave the message ([Message.ID]). It is the best key if each producer
// gives every event one ID and keeps it when it sends the event again. It protects nothing if a client library makes
// a new ID for each publish.
func ProducerID() Key {
	return func(m *Message) (string, error) {
		if m.ID == "" {
			return "", noKey("the message has no ID")
		}
		return m.ID, nil
	}
}

// Header takes a header that the producer has set. It is as good as [ProducerID] if the broker has no place for an
// ID. Letter case of the name counts.
func Header(name string) Key {
	if name == "" {
		return nil
	}
	return func(m *Message) (string, error) {
		switch v, _, err := m.header(name); {
		case err != nil:
			return "", fmt.Errorf("%w: %w", ErrNoKey, err)
		case v != "":
			return v, nil
		}
		return "", noKey("the header %q is missing or empty", name)
	}
}

// ContentHash takes the SHA-256 of the body. It merges two real orders with the same content into one: use it only if
// equal messages ask for the same effect. No header counts: the headers of a retry or a broker do not change the key,
// but a producer that encodes the message anew does.
func ContentHash() Key {
	return func(m *Message) (string, error) {
		h := sha256.New()
		h.Write([]byte("everonce/consume/content/1\x00"))
		h.Write(m.Body)
		return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
	}
}

// BrokerID takes the ID that the broker gave the message. It survives a redelivery. But a message that the producer
// sends again, or that is moved back from the dead letters, has another ID on most brokers, and takes effect twice.
// By broker: RabbitMQ gives none; SQS keeps it over redeliveries, but neither over a producer's resend nor over a
// redrive; Kafka's topic, partition and offset change with a resend and with a topic's migration; NATS' stream
// sequence changes with a resend outside its duplicate window.
func BrokerID() Key {
	return func(m *Message) (string, error) {
		if m.BrokerID == "" {
			return "", noKey("the broker has given the message no ID")
		}
		return m.BrokerID, nil
	}
}

// Composite joins a name and the values of other keys: Composite("Order", JSONPointer("/order/id"), ProducerID())
// gives "Order:12345:msg-7". All parts must be there. ":" and "%" in a value are escaped, so that no two lists of
// values give the same key. A business key alone merges what a producer means to happen twice: put the producer's own
// ID after it. Composite returns nil without parts.
func Composite(name string, parts ...Key) Key {
	if unusable(parts) {
		return nil
	}
	named := func(*Message) (string, error) { return name, nil }
	return joined(append([]Key{named}, parts...)...)
}

// partEscaper keeps the separator out of a part; "%" goes first.
var partEscaper = strings.NewReplacer("%", "%25", ":", "%3A")

// joined is a [Composite] without a name.
func joined(parts ...Key) Key {
	return func(m *Message) (string, error) {
		values := make([]string, len(parts))
		for i, part := range parts {
			v, err := part(m)
			if err != nil {
				return "", err
			}
			values[i] = partEscaper.Replace(v)
		}
		return strings.Join(values, ":"), nil
	}
}

// FirstOf takes the first key that is found. The keys should be of different forms, because the same value found by
// two of them is the same key; if they are not, put a [Composite] around each. A header whose value is missing from
// this delivery ([Message.Odd]) is not passed over: another delivery of the message may have it.
func FirstOf(keys ...Key) Key {
	if unusable(keys) {
		return nil
	}
	return func(m *Message) (string, error) {
		var errs []error
		for _, key := range keys {
			v, err := key(m)
			if err == nil {
				return v, nil
			}
			if _, odd := errors.AsType[*oddError](err); odd {
				return "", err
			}
			errs = append(errs, err)
		}
		return "", errors.Join(append(errs, noKey("none of %d ways has found one", len(keys)))...)
	}
}
