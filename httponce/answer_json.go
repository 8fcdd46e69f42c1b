package httponce

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"
)

// MarshalJSON returns the answer in the form of the status handler's document, which "everonce keys settle --result"
// takes. It fails if the body is not kept with the answer itself.
func (a Answer) MarshalJSON() ([]byte, error) {
	a.normalize()
	if !a.hasStatus() {
		return nil, fmt.Errorf("httponce: %d is not the status of an answer", a.Status)
	}
	if a.saved != nil && a.saved.pieces.total != 0 {
		return nil, errors.New("httponce: the body of this answer is in separate records")
	}
	body := a.Body
	if a.saved != nil {
		body = []byte(a.saved.body())
	}
	return json.Marshal(a.statusAnswer(body))
}

// statusAnswer returns the answer as [Status] tells it, with its whole body, unless it is elided.
func (a *Answer) statusAnswer(body []byte) statusAnswer {
	doc := statusAnswer{Status: a.Status, Headers: http.Header{}}
	a.putHeader(doc.Headers)
	delete(doc.Headers, "Trailer")
	if a.Elided {
		withoutBody(doc.Headers)
		doc.Missing = markElided
		return doc
	}
	doc.setBody(body)
	trailers := http.Header{}
	a.putTrailer(trailers)
	doc.setTrailers(trailers)
	return doc
}

// UnmarshalJSON reads the output of MarshalJSON. Every member is optional; the default status is 200. An unknown
// member, an invalid status and two bodies are errors: a misspelled member must not become an empty answer that is kept
// for good. Content-Length is always the body's length.
func (a *Answer) UnmarshalJSON(data []byte) error {
	var doc statusAnswer
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&doc); err != nil {
		return fmt.Errorf("httponce: an answer: %w", err)
	}
	got := Answer{Status: doc.Status, Header: typedFields(doc.Headers), Body: doc.BodyBase64, Trailer: typedFields(doc.Trailers)}
	got.normalize()
	switch {
	case !got.hasStatus():
		return fmt.Errorf("httponce: %d is not the status of an answer", doc.Status)
	case doc.Body != nil && doc.BodyBase64 != nil:
		return errors.New("httponce: an answer has one body: body or body_base64")
	case doc.Missing != "" && (doc.Body != nil || doc.BodyBase64 != nil):
		return errors.New("httponce: an answer marked as missing its body has one")
	case doc.Body != nil:
		got.Body = []byte(*doc.Body)
	}
	got.Elided = doc.Missing != ""
	delete(got.Header, "Content-Length")
	*a = got
	return nil
}

// typedFields returns fields whose names were typed by somebody, as net/http has them.
func typedFields(h http.Header) http.Header {
	if h == nil {
		return nil
	}
	c := make(http.Header, len(h))
	for name, values := range h {
		if plain, ok := strings.CutPrefix(name, http.TrailerPrefix); ok { // with the colon it would not be canonicalized
			name = http.TrailerPrefix + http.CanonicalHeaderKey(plain)
		}
		for _, v := range values {
			c.Add(name, v)
		}
	}
	return c
}

// setBody sets the body, as text if it is UTF-8.
func (doc *statusAnswer) setBody(body []byte) {
	if utf8.Valid(body) {
		text := string(body)
		doc.Body = &text
		return
	}
	doc.BodyBase64 = body
}

// setTrailers sets the trailers, by their names. One that was announced, and set behind the body too, is sent twice.
func (doc *statusAnswer) setTrailers(trailers http.Header) {
	for _, name := range slices.Sorted(maps.Keys(trailers)) {
		if doc.Trailers == nil {
			doc.Trailers = http.Header{}
		}
		plain := strings.TrimPrefix(name, http.TrailerPrefix)
		doc.Trailers[plain] = append(doc.Trailers[plain], trailers[name]...)
	}
}
