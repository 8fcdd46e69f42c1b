package httponce

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce/internal/wire"
)

// HeaderPolicy selects the headers and trailers of an answer that are saved and replayed, among those that the handler
// set, changed or removed. Headers that stood there before belong to the middlewares around this one, which set them
// anew for every request; values that the handler added to them are saved.
//
// Never saved are:
//   - what gives a client a session or takes it away: Set-Cookie, Set-Cookie2, Clear-Site-Data
//   - challenges and proofs of one exchange: WWW-Authenticate, Authentication-Info, Proxy-Authenticate,
//     Proxy-Authentication-Info, and the credentials Authorization and Proxy-Authorization
//   - what belongs to one connection (RFC 9110, 7.6.1): Connection and the headers that it names, Keep-Alive,
//     Proxy-Connection, TE, Transfer-Encoding, Upgrade
//   - Date: the server sets it anew
//
// Location and Content-Type are always saved: without a type, net/http would guess one.
//
// A body is saved as the handler wrote it. Put a middleware that compresses around this one: then the saved body is
// plain, and each client gets the encoding that it accepts. If it is inside, every client gets the encoding of the
// first.
type HeaderPolicy struct {
	// Allow, if not nil, lists the only headers that are saved.
	Allow []string
	// Deny lists headers that are not saved.
	Deny []string
}

// headerFilter is a checked HeaderPolicy.
type headerFilter struct {
	allow, deny map[string]bool
}

func (p HeaderPolicy) compile() (f headerFilter, err error) {
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
		if !wire.IsToken(name) {
			return nil, fmt.Errorf("%w: Header has %q, which is not the name of a header field", everonce.ErrInvalidArgument, name)
		}
		set[http.CanonicalHeaderKey(name)] = true
	}
	return set, nil
}

func (f *headerFilter) saves(name string) bool {
	name = http.CanonicalHeaderKey(name)
	switch {
	case name == "Location" || name == "Content-Type":
		return true
	case wire.NeverSaved[name] || f.deny[name]:
		return false
	}
	return f.allow == nil || f.allow[name]
}

// mark says of each field whether it is saved, and of which values. before is what stood in the header
// when the handler was called. It returns the fields with those that the handler has removed.
func (f *headerFilter) mark(fs, before fields) fields {
	for i := range before {
		if name := before[i].name; fs.named(name) == nil {
			fs = append(fs[:len(fs):len(fs)], field{name: name, removed: true})
		}
	}
	ofConnection := fs.ofConnection()
	for i := range fs {
		fd := &fs[i]
		name := strings.TrimPrefix(fd.name, http.TrailerPrefix)
		if !f.saves(name) || ofConnection != nil && ofConnection[strings.ToLower(name)] {
			continue
		}
		fd.saved = true
		if len(before) == 0 || fd.removed {
			continue
		}
		if old := before.named(fd.name); old != nil {
			fd.from = int32(fd.beyond(old)) //nolint:gosec // a number of values
			fd.saved = fd.len() != old.len() || int(fd.from) < old.len()
		}
	}
	return fs
}

// ofConnection returns, in lower case, the headers that belong to one connection because Connection, in any spelling,
// names them.
func (fs fields) ofConnection() (names map[string]bool) {
	for i := range fs {
		if strings.EqualFold(fs[i].name, "Connection") {
			names = fs[i].listed(names)
		}
	}
	return names
}

// beyond returns from which value on a field goes beyond what it was: 0 where it is not an addition.
func (f *field) beyond(old *field) int {
	n := old.len()
	if f.len() < n {
		return 0
	}
	for i := range n {
		if f.value(i) != old.value(i) {
			return 0
		}
	}
	return n
}

// listed adds, in small letters, the tokens of a field that is a list. There may be as many of them as there are
// headers.
func (f *field) listed(tokens map[string]bool) map[string]bool {
	if tokens == nil {
		tokens = map[string]bool{}
	}
	for i := range f.len() {
		for part := range strings.SplitSeq(f.value(i), ",") {
			tokens[strings.ToLower(strings.Trim(part, " \t"))] = true
		}
	}
	return tokens
}
