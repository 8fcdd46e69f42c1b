package httponce

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce/internal/wire"
	"github.com/everonce/everonce/internal/jsonform"
)

// bodyKey finds keys in bodies. The zero value finds none.
type bodyKey struct {
	json *jsonform.Pointer
	from func(*http.Request, []byte) (string, error)
}

// bodyKey returns what finds the keys of a route in its bodies.
func (r *Route) bodyKey() (k bodyKey, err error) {
	k.from = r.KeyFrom
	switch {
	case r.KeyJSON == "":
		return k, nil
	case r.KeyFrom != nil:
		return k, fmt.Errorf("%w: KeyJSON and KeyFrom exclude each other", everonce.ErrInvalidArgument)
	}
	p, ok := jsonform.ParsePointer(r.KeyJSON)
	if !ok {
		return k, fmt.Errorf("%w: KeyJSON: %q is no JSON pointer to a field (RFC 6901), like \"/idempotency_key\"", everonce.ErrInvalidArgument, r.KeyJSON)
	}
	k.json = &p
	return k, nil
}

// none reports whether the route has its keys in headers only.
func (k *bodyKey) none() bool { return k.json == nil && k.from == nil }

// in reports whether the body of a request has to be read to know its key. A compressed body cannot be searched: a key
// in the header counts alone then.
func (k *bodyKey) in(r *http.Request, inHeader bool) bool {
	return k.from != nil || k.json != nil && maybeJSON(r.Header) && (!inHeader || !isCoded(r.Header))
}

// sequences are the media types of many JSON texts in one body, which has no place for a key.
var sequences = []string{"application/jsonl", "application/jsonlines", "application/x-jsonlines", "application/ndjson", "application/x-ndjson", "application/json-seq"}

// maybeJSON reports whether anything says that a body is JSON. Services read bodies as JSON that isJSON takes for
// something else: a key that is not looked for there would protect nothing.
func maybeJSON(h http.Header) bool {
	return slices.ContainsFunc(h["Content-Type"], func(value string) bool {
		media, _, _ := strings.Cut(strings.ToLower(value), ";")
		return strings.Contains(strings.ToLower(value), "json") && !slices.Contains(sequences, strings.TrimSpace(media))
	})
}

// isCoded reports whether a body is compressed, or encoded in another way.
func isCoded(h http.Header) bool {
	return slices.ContainsFunc(h["Content-Encoding"], func(value string) bool {
		value = strings.TrimSpace(value)
		return value != "" && !strings.EqualFold(value, "identity")
	})
}

// place is where the key is, as a client may read it.
func (k *bodyKey) place() string {
	if k.json != nil {
		return k.json.String() + " in the JSON body"
	}
	return "the key in the body"
}

// keyInBody returns the key in the body, which has been read. found is false if it has no key. The error is the body's.
func (x *exchange) keyInBody() (key string, found bool, wrong wire.KeyProblem, err error) {
	k, b := &x.route.bodyKey, &x.body
	switch {
	case k.from != nil:
	case b.size == 0:
		return "", false, "", nil
	case isCoded(x.r.Header):
		return "", true, wire.KeyCompressed, nil
	}
	err = jsonform.Few(b.size, func() error {
		text, err := b.bytes()
		switch {
		case err != nil:
		case k.from != nil:
			key, found, wrong = x.keyFrom(text)
		default:
			key, found, wrong = k.findJSON(text)
		}
		return err
	})
	return key, found, wrong, err
}

// keyFrom calls [Route.KeyFrom]. The request is its own: a form that it parses is not the handler's.
func (x *exchange) keyFrom(text []byte) (key string, found bool, wrong wire.KeyProblem) {
	r := x.r.Clone(x.r.Context())
	r.MultipartForm = x.r.MultipartForm // of a form that somebody else has parsed, the files are his
	r.Body = io.NopCloser(bytes.NewReader(text))
	defer x.tidy(r)
	key, err := x.route.bodyKey.from(r, text)
	switch {
	case err != nil:
		return "", true, errorProblem(err, key)
	case key == "":
		return "", false, ""
	}
	return key, true, wire.CheckKey(key)
}

func (k *bodyKey) findJSON(text []byte) (key string, found bool, wrong wire.KeyProblem) {
	value, found, err := k.json.Find(text)
	switch {
	case err != nil: // fail closed: the service may find a key where this finds no JSON
		return "", true, wire.KeyProblem(err.Error())
	case !found, value.Kind() == jsontext.KindNull:
		return "", false, ""
	case value.Kind() != jsontext.KindString:
		return "", true, wire.KeyNotText
	}
	key = value.String()
	return key, true, wire.CheckKey(key)
}

// errorProblem returns the problem that a [Route.KeyFrom] found.
func errorProblem(err error, key string) wire.KeyProblem {
	if text := strings.TrimSuffix(err.Error(), "."); key == "" && text != "" {
		return wire.KeyProblem(text)
	}
	return keyProblemOf(err, key)
}
