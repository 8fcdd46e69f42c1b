package consume

import (
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/internal/jsonform"
)

// Compare selects the parts of a message that must be equal when its key is used again: by default the body, byte
// for byte. A message that differs becomes a dead letter. After a change of the Compare, messages that were handled
// before it are not compared.
type Compare struct {
	// Headers are compared too. Name only headers that the producer sets: a header that a broker or a retry adds would
	// make every redelivery differ.
	Headers []string

	// JSON compares bodies by their meaning. It ignores white space, the order of an object's fields, the spelling of
	// strings and the content type. Numbers are compared by their digits: neither 9007199254740993 and 9007199254740992
	// nor 1.0 and 1 are equal. A body is compared byte for byte if it is not valid JSON, has a field twice, or is nested
	// deeper than 128 levels. A comparison takes memory, up to about 25 times the body if that has very many small
	// fields, so MaxBody is 1 MiB by default.
	JSON bool
	// JSONOnly, if set, compares these fields of such a body and no others. They are JSON pointers (RFC 6901), for
	// example "/order/id". A missing field differs from every value, including null. If the body has none of the fields,
	// all of it is compared. JSONOnly implies JSON.
	JSONOnly []string
	// JSONExcept excludes these fields from the comparison. Name fields that a producer changes when it sends a message
	// again. They are JSON pointers, for example "/sent_at". A missing field changes nothing. An excluded array element
	// does not shift the indices of the others. JSONExcept implies JSON and excludes JSONOnly.
	JSONExcept []string
}

// fingerprinter computes the fingerprints of a valid Compare.
type fingerprinter struct {
	headers []string // sorted
	json    *jsonform.Form
	alg     string // empty for the default Compare
}

func (f *Compare) comparesJSON() bool { return f.JSON || f.JSONOnly != nil || f.JSONExcept != nil }

func (f Compare) compile() (c fingerprinter, err error) {
	if len(f.Headers) == 0 && !f.comparesJSON() {
		return c, nil
	}
	c.headers = slices.Compact(slices.Sorted(slices.Values(f.Headers)))
	var only, except []string
	if f.comparesJSON() {
		if c.json, err = jsonform.New(f.JSONOnly, f.JSONExcept); err != nil {
			return c, err
		}
		only, except = c.json.Pointers()
	}
	// The algorithm's name includes everything but the message that the sum depends on, so that a redelivery after a
	// change of the Compare is not a mismatch.
	parts := []any{c.json != nil}
	for _, names := range [][]string{c.headers, only, except} {
		parts = append(parts, len(names))
		for _, name := range names {
			parts = append(parts, name)
		}
	}
	sum := everonce.FingerprintOf(parts...).Sum
	c.alg = "message/1+" + hex.EncodeToString(sum[:8])
	return c, nil
}

// of returns the fingerprint of m.
func (f *fingerprinter) of(m *Message) (everonce.Fingerprint, error) {
	if f.alg == "" {
		return everonce.FingerprintOf("message", m.Body), nil
	}
	parts := []any{"raw", m.Body}
	if f.json != nil {
		sum, ok, err := f.json.Sum(int64(len(m.Body)), func() ([]byte, error) { return m.Body, nil })
		if err != nil {
			return everonce.Fingerprint{}, err
		}
		if ok {
			parts = []any{"json", sum[:]}
		}
	}
	for _, name := range f.headers {
		value, found, err := m.header(name)
		if err != nil {
			return everonce.Fingerprint{}, fmt.Errorf("consume: fingerprint: %w", err)
		}
		parts = append(parts, name, found, value)
	}
	sum := everonce.FingerprintOf(parts...)
	sum.Alg = f.alg
	return sum, nil
}
