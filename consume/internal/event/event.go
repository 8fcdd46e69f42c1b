// Package event fills in the fields of a message that describe its event.
package event

import (
	"cmp"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/internal/envelope"
)

// Describe sets the fields of a message that describe its event: from the envelope in its headers and body, or else
// from native, the protocol's own properties. It keeps an ID that the message already has.
func Describe(m *consume.Message, native envelope.Envelope) {
	said := envelope.Read(m.ContentType, m.Headers, m.Body).Or(native)
	m.ID, m.Type, m.EventSource, m.OrderKey, m.Time = cmp.Or(m.ID, said.ID), said.Type, said.Source, said.Key, said.Time
}
