package httponce

import (
	"net/http"

	"github.com/everonce/everonce"
)

// HeaderPolicy says which headers of an answer are saved and replayed. Never are: Set-Cookie and the other
// credentials, what belongs to one connection (RFC 9110, 7.6.1), and Date. Location always is.
type HeaderPolicy struct {
	// Allow, if set, are the only ones saved.
	Allow []string
	// Deny are not saved.
	Deny []string
}

// headerFilter is a checked HeaderPolicy.
type headerFilter struct {
	allow, deny map[string]bool
}

// neverSaved are the headers that are one answer's own.
var neverSaved = map[string]bool{
	"Set-Cookie": true, "Date": true,
	"Connection": true, "Keep-Alive": true, "Proxy-Connection": true, "Proxy-Authenticate": true,
	"Te": true, "Transfer-Encoding": true, "Upgrade": true, "Trailer": true,
}

func (p HeaderPolicy) checked() (headerFilter, error) {
	var f headerFilter
	var err error
	if f.allow, err = fieldNames(p.Allow); err != nil {
		return f, err
	}
	f.deny, err = fieldNames(p.Deny)
	return f, err
}

func fieldNames(names []string) (map[string]bool, error) {
	if names == nil {
		return nil, nil
	}
	set := make(map[string]bool, len(names))
	for _, name := range names {
		if !validFieldName(name) {
			return nil, everonce.ErrInvalidArgument
		}
		set[http.CanonicalHeaderKey(name)] = true
	}
	return set, nil
}

// saves reports whether a header is saved.
func (f *headerFilter) saves(name string) bool {
	name = http.CanonicalHeaderKey(name)
	switch {
	case name == "Location":
		return true
	case neverSaved[name] || f.deny[name]:
		return false
	}
	return f.allow == nil || f.allow[name]
}

// validFieldName reports whether s is a token (RFC 9110, 5.6.2).
func validFieldName(s string) bool {
	if s == "" {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c >= 0x7f || containsByte(`"(),/:;<=>?@[\]{}`, c) {
			return false
		}
	}
	return true
}

func containsByte(s string, c byte) bool {
	for i := range len(s) {
		if s[i] == c {
			return true
		}
	}
	return false
}
