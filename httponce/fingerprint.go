package httponce

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"io"
	"net/http"
	"strings"

	"github.com/everonce/everonce"
)

// Fingerprint says which parts of a request must be equal when its key is used again: by default method, host,
// path, query and body, byte for byte. A reuse that differs is answered 422.
type Fingerprint struct {
	// Headers are added, like Content-Type.
	Headers []string
	// IgnoreHost leaves the host out: for a service that its clients reach under several names.
	IgnoreHost bool
}

// fingerprinter is a checked Fingerprint.
type fingerprinter struct {
	Fingerprint
	alg string
}

func (f Fingerprint) checked(keyHeader string) (fingerprinter, error) {
	return fingerprinter{Fingerprint: f, alg: "http/1"}, nil
}

// of hashes a request, whose body is given.
func (f *fingerprinter) of(r *http.Request, body *body) (everonce.Fingerprint, error) {
	h := sha256.New()
	part(h, r.Method)
	if !f.IgnoreHost {
		part(h, strings.ToLower(r.Host))
	}
	part(h, r.URL.EscapedPath())
	part(h, r.URL.RawQuery)
	for _, name := range f.Headers {
		part(h, strings.Join(r.Header.Values(name), "\x00"))
	}
	if _, err := io.Copy(h, body.reader()); err != nil {
		return everonce.Fingerprint{}, err
	}
	sum := everonce.Fingerprint{Alg: f.alg}
	h.Sum(sum.Sum[:0])
	return sum, nil
}

func part(h hash.Hash, s string) {
	var size [8]byte
	binary.BigEndian.PutUint64(size[:], uint64(len(s)))
	h.Write(size[:])
	io.WriteString(h, s) //nolint:errcheck // a hash does not fail
}
