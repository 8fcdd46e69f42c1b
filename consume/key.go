package consume

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Key returns the key of a message, which names the one effect that the message asks for. It is the same for every
// delivery of the message. The error wraps [ErrNoKey] and quotes nothing of the message. A constructor of a Key
// returns nil if its arguments are invalid: no message, or every message, would have that key. Constructors of a
// consumer reject a nil Key.
type Key func(*Message) (string, error)

// Of returns the key of m: what k returns, joined with [Message.Occurrence] if that is set. It returns k's error.
func (k Key) Of(m *Message) (string, error) {
	if m.Occurrence == "" {
		return k(m)
	}
	return joined(func(m *Message) (string, error) { return m.Occurrence, nil }, k)(m)
}

// unusable reports whether a key made of these keys would name no message, or every message.
func unusable(keys []Key) bool {
	return len(keys) == 0 || slices.ContainsFunc(keys, func(k Key) bool { return k == nil })
}

// ErrNoKey says that a message has no valid key.
var ErrNoKey = errors.New("consume: no key")

func noKey(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrNoKey, fmt.Sprintf(format, args...))
}

// ProducerID uses the producer's message ID ([Message.ID]). It is the best key if the producer assigns one ID to every
// event and keeps it when it sends the event again. It does not protect if a client library makes a new ID for each
// publish. It merges CloudEvents of two sources that have the same id, so that the second takes no effect: use
// [CloudEvent] if events of several sources share the queue or topic.
func ProducerID() Key {
	return func(m *Message) (string, error) {
		if m.ID == "" {
			return "", noKey("the message has no ID")
		}
		return m.ID, nil
	}
}

// Header uses a header that the producer sets, like [ProducerID] for brokers without a message ID. The name is
// case-sensitive.
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

// ContentHash uses the SHA-256 of the body, without the headers. It merges two real orders with the same content into
// one: use it only if equal messages ask for the same effect. A producer that encodes the message differently changes
// the key.
func ContentHash() Key {
	return func(m *Message) (string, error) {
		h := sha256.New()
		h.Write([]byte("everonce/consume/content/1\x00"))
		h.Write(m.Body)
		return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
	}
}

// BrokerID uses the broker's message ID ([Message.BrokerID]). A redelivery has the same ID. But a message that the
// producer sends again, or that is replayed from the dead letters, has another ID on most brokers, and takes effect
// twice. RabbitMQ has none; SQS keeps it over redeliveries, but neither over a producer's resend nor over a redrive;
// Kafka's topic, partition and offset change with a resend and with a topic's migration; NATS' stream sequence changes
// with a resend outside its duplicate window.
func BrokerID() Key {
	return func(m *Message) (string, error) {
		if m.BrokerID == "" {
			return "", noKey("the message has no broker ID")
		}
		return m.BrokerID, nil
	}
}

// Composite joins a name and the values of other keys: Composite("Order", JSONPointer("/order/id"), ProducerID())
// gives "Order:12345:msg-7". All parts are required. ":" and "%" in a value are escaped, so that no two lists of
// values give the same key. A business key alone merges what a producer means to happen twice: put the producer's own
// ID after it. Composite returns nil without parts.
func Composite(name string, parts ...Key) Key {
	if unusable(parts) {
		return nil
	}
	named := func(*Message) (string, error) { return name, nil }
	return joined(append([]Key{named}, parts...)...)
}

// partEscaper escapes the separator in a part.
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

// FirstOf uses the first key that a message has. Two keys with the same value are the same key: wrap each of them in a
// [Composite] if their values can be equal. FirstOf does not skip a header whose value is missing from this delivery
// ([Message.OmittedHeaders]), because another delivery of the message may have it.
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
			if _, omitted := errors.AsType[*omittedError](err); omitted {
				return "", err
			}
			errs = append(errs, err)
		}
		return "", errors.Join(append(errs, noKey("none of %d keys was found", len(keys)))...)
	}
}
