package httponce

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce/internal/wire"
	"github.com/everonce/everonce/internal/jsonform"
)

// Compare says which parts of a request must be the same when its key is used again: by default method, host,
// path, query and body, the body byte for byte. A reuse that differs is answered 422.
//
// Two paths are equal if they are equivalent by RFC 3986, section 6.2.2: escapes of unreserved characters (%41), the
// letter case of hexadecimal digits (%2f) and dot segments do not matter. So /a, //a and /%2Fa are three paths. Path
// and query are compared both as the handler gets them and as the client sent them. Letter case of the host does not
// matter.
type Compare struct {
	// Headers are compared too, for example Content-Type. An absent header, an empty one and a repeated one are three
	// different things.
	Headers []string
	// IgnoreHost leaves the host out, for a service that its clients reach under several names.
	IgnoreHost bool

	// JSON compares bodies of the media types application/json and …+json by their meaning: white space, the order of an
	// object's fields and the spelling of strings do not matter. A number is its digits: neither 9007199254740993 and
	// 9007199254740992 nor 1.0 and 1 are equal. A body is compared byte for byte if it is not valid JSON, has a field
	// twice, is nested deeper than 128 levels, or has another type. A route that compares JSON takes bodies of up to 1 MiB
	// by default.
	JSON bool
	// JSONOnly, if set, compares these fields of such a body and no others. They are JSON pointers (RFC 6901), for example
	// "/order/id". A missing field differs from every value, including null. If all of the fields are missing, the whole
	// body is compared. JSONOnly implies JSON.
	JSONOnly []string
	// JSONExcept leaves these fields out. They are JSON pointers, for example "/sentAt". A missing field changes
	// nothing. An array element that is left out does not shift the indices of the others. JSONExcept implies JSON
	// and excludes JSONOnly.
	JSONExcept []string
}

// fingerprinter is a checked Compare.
type fingerprinter struct {
	ignoreHost bool
	headers    []string // canonical, sorted
	json       *jsonform.Form
	alg        string
}

const (
	// algDefault is the Alg of what is hashed by default. An Alg names all that the sum depends on but the request, so
	// that a deploy that changes it makes no mismatch of every retry.
	algDefault = "http/2"
	// algRedirected is the Alg of a key that was released by a redirect: see [guard.unbind].
	algRedirected = "http/redirected"
	// maxHeaders bounds the headers of a fingerprint, which are looked up for every request.
	maxHeaders = 64
)

func (f Compare) compile(keyHeader string) (fingerprinter, error) {
	c := fingerprinter{ignoreHost: f.IgnoreHost, alg: algDefault}
	for _, name := range f.Headers {
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !wire.IsToken(name):
			return c, fmt.Errorf("%w: Compare.Headers: %q is not the name of a header", everonce.ErrInvalidArgument, name)
		case canonical == keyHeader:
			return c, fmt.Errorf("%w: Compare.Headers: %s is the key, which has two spellings", everonce.ErrInvalidArgument, name)
		case wire.ServerTakes[canonical]:
			return c, fmt.Errorf("%w: Compare.Headers: %s never reaches a handler as a header", everonce.ErrInvalidArgument, name)
		}
		c.headers = append(c.headers, canonical)
	}
	slices.Sort(c.headers)
	c.headers = slices.Compact(c.headers)
	if len(c.headers) > maxHeaders {
		return c, fmt.Errorf("%w: Compare.Headers has %d names, the limit is %d", everonce.ErrInvalidArgument, len(c.headers), maxHeaders)
	}
	var err error
	if c.json, err = f.jsonForm(); err != nil {
		return c, err
	}
	c.alg = c.name()
	return c, nil
}

// name returns the Alg.
func (f *fingerprinter) name() string {
	if !f.ignoreHost && len(f.headers) == 0 && f.json == nil {
		return algDefault
	}
	var b []byte
	if f.ignoreHost {
		b = append(b, "nohost"...)
	}
	b = appendList(b, f.headers)
	if f.json != nil {
		b = append(b, "json"...)
		only, except := f.json.Pointers()
		b = appendList(b, only)
		b = appendList(b, except)
	}
	sum := sha256.Sum256(b)
	return algDefault + "+" + hex.EncodeToString(sum[:8])
}

// The forms in which a body is hashed. They are a part of the sum, and not of Alg: sums of two Algs are not
// compared, and the sender chooses the form.
const (
	formRaw  = 'r'
	formJSON = 'j'
)

// of hashes a request, whose body has been read.
func (f *fingerprinter) of(r *http.Request, body *body) (everonce.Fingerprint, error) {
	var stack [512]byte
	b := appendPart(stack[:0], r.Method)
	if !f.ignoreHost {
		b = appendPart(b, strings.ToLower(r.Host))
	}
	normal := normalPath(r.URL)
	b = appendPart(b, normal)
	b = appendPart(b, targetOf(r, normal))
	b = appendPart(b, r.URL.RawQuery)
	for _, name := range f.headers {
		b = appendList(b, r.Header[name])
	}
	form, sum, err := f.bodySum(r, body)
	if err != nil {
		return everonce.Fingerprint{}, err
	}
	b = append(b, form)
	b = append(b, sum[:]...)
	return everonce.Fingerprint{Alg: f.alg, Sum: sha256.Sum256(b)}, nil
}

func (f *fingerprinter) bodySum(r *http.Request, body *body) (form byte, sum [sha256.Size]byte, err error) {
	if f.json != nil && isJSON(r.Header) {
		sum, ok, err := f.json.Sum(body.size, body.bytes)
		if ok || err != nil {
			return formJSON, sum, err
		}
	}
	return formRaw, body.sum(), nil
}

// appendList writes how many values there are, and each with its length.
func appendList(b []byte, values []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(values)))
	for _, v := range values {
		b = appendPart(b, v)
	}
	return b
}

func appendPart(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}
