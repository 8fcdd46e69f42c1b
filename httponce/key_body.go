package httponce

import (
	"fmt"
	"net/http"
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

// in reports whether the body of a request has to be read to know its key.
func (k *bodyKey) in(r *http.Request) bool {
	return k.from != nil || k.json != nil && isJSON(r.Header)
}

// place is where the key is, as a client may read it.
func (k *bodyKey) place() string {
	if k.json != nil {
		return k.json.String() + " in the JSON body"
	}
	return "the key in the body"
}

// find returns the key in a body that has been read. found is false if there is none. The error is the body's.
func (k *bodyKey) find(r *http.Request, b *body) (key string, found bool, wrong wire.KeyProblem, err error) {
	if k.from != nil {
		text, err := b.bytes()
		if err != nil {
			return "", false, "", err
		}
		key, failed := k.from(r, text)
		if failed != nil {
			return "", true, errorProblem(failed, key), nil
		}
		if key == "" {
			return "", false, "", nil
		}
		return key, true, wire.CheckKey(key), nil
	}
	if b.size == 0 {
		return "", false, "", nil
	}
	err = jsonform.Few(b.size, func() error {
		text, err := b.bytes()
		if err == nil {
			key, found, wrong = k.findJSON(text)
		}
		return err
	})
	return key, found, wrong, err
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
