package everonce

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Limits of a [Key], in bytes.
const (
	// MaxIDLen is the longest ID.
	MaxIDLen = 512
	// MaxScopeLen is the longest Scope, in its encoded form.
	MaxScopeLen = 512
)

// Key names one operation: one intended effect.
//
// Two deliveries with equal keys are the same operation: the second is answered from what the first left. A saved
// result never leaves its Scope.
type Key struct {
	// Scope says who and what: the tenant or principal, and the route or consumer.
	Scope Scope
	// ID is the caller's stable identifier of the operation. It must be chosen before the first try, and repeated
	// unchanged by every further one.
	ID string
}

// Scope is a list of parts in one string, such as a tenant and a route. Build it with [ScopeOf]; a constant without
// "/" and "%" is a scope of one part as it is. An empty part is refused when a key is used: otherwise all whose
// tenant was never set would share one scope, and each other's results.
//
// Scopes are stored in clear, so that an operator can list and delete what belongs to one tenant: put no secret into
// them. A credential that serves as the principal must be hashed first.
type Scope string

// ScopeOf joins parts so that no two lists of parts give the same scope: a "/" separates them, and "/" and "%" inside
// a part are escaped.
func ScopeOf(parts ...string) Scope {
	if len(parts) == 1 && !strings.ContainsAny(parts[0], "/%") {
		return Scope(parts[0])
	}
	var stack [128]byte
	b := stack[:0]
	for i, p := range parts {
		if i > 0 {
			b = append(b, '/')
		}
		b = appendScopePart(b, p)
	}
	return Scope(b)
}

func appendScopePart(b []byte, part string) []byte {
	for i := range len(part) {
		switch c := part[i]; c {
		case '%':
			b = append(b, "%25"...)
		case '/':
			b = append(b, "%2F"...)
		default:
			b = append(b, c)
		}
	}
	return b
}

var scopeUnescaper = strings.NewReplacer("%2F", "/", "%25", "%")

// Parts returns the list that the scope was built from.
func (s Scope) Parts() []string {
	parts := strings.Split(string(s), "/")
	for i, p := range parts {
		parts[i] = scopeUnescaper.Replace(p)
	}
	return parts
}

// Within reports whether s is outer or lies inside it, that is, whether its first parts are the parts of outer.
func (s Scope) Within(outer Scope) bool {
	rest, ok := strings.CutPrefix(string(s), string(outer))
	return ok && (rest == "" || rest[0] == '/')
}

// Validate reports why no key can have the scope, as [Key.Validate] does.
func (s Scope) Validate() error {
	if err := named(ErrInvalidKey, "scope", string(s), MaxScopeLen); err != nil {
		return err
	}
	if s[0] == '/' || s[len(s)-1] == '/' || strings.Contains(string(s), "//") {
		return fmt.Errorf("%w: the scope has an empty part", ErrInvalidKey)
	}
	return nil
}

// root returns the first part, still encoded.
func (s Scope) root() string {
	root, _, _ := strings.Cut(string(s), "/")
	return root
}

// Validate reports why k cannot name an operation. The error wraps [ErrInvalidKey] and says which part is empty, too
// long, not UTF-8, or holds a control character. It never quotes the key.
func (k Key) Validate() error {
	if err := k.Scope.Validate(); err != nil {
		return err
	}
	return named(ErrInvalidKey, "ID", k.ID, MaxIDLen)
}

// fits reports whether the key is short enough to be worth a hash.
func (k Key) fits() bool { return len(k.Scope) <= MaxScopeLen && len(k.ID) <= MaxIDLen }

// named refuses a name that is empty, too long, not UTF-8, or holds a control character. It does not quote it.
func named(sentinel error, what, s string, limit int) error {
	switch {
	case s == "":
		return fmt.Errorf("%w: the %s is empty", sentinel, what)
	case len(s) > limit:
		return fmt.Errorf("%w: the %s has %d bytes, the limit is %d", sentinel, what, len(s), limit)
	}
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ' || c == 0x7f:
			return fmt.Errorf("%w: the %s has a control character at byte %d", sentinel, what, i)
		case c >= utf8.RuneSelf:
			return namedRunes(sentinel, what, s)
		}
	}
	return nil
}

func namedRunes(sentinel error, what, s string) error {
	for i, r := range s {
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(s[i:]); size == 1 {
				return fmt.Errorf("%w: the %s is not valid UTF-8 at byte %d", sentinel, what, i)
			}
		}
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return fmt.Errorf("%w: the %s has a control character at byte %d", sentinel, what, i)
		}
	}
	return nil
}

// RecordID is the identity of a key's record in a store: 8 bytes that stand for the first part of the scope, then 24
// bytes of a SHA-256 over the length-prefixed scope and ID (of an HMAC if an identity secret is set). It is binary
// and of fixed length, so that neither collation nor letter case matters, and the records of one tenant are next to
// each other in the order of IDs.
type RecordID [32]byte

// String returns the ID in hexadecimal.
func (id RecordID) String() string { return hex.EncodeToString(id[:]) }

// Short returns what logs, errors and spans show instead of the key: the text of its [KeyHash].
func (id RecordID) Short() string { return id.Hash().String() }

// Hash returns the part of the ID by which a [Lister] finds the record of what a log has told.
func (id RecordID) Hash() KeyHash { return KeyHash(id[8:16]) }

// KeyHash is the first 8 bytes of the hash in a [RecordID], which follow those that stand for the scope. The zero value is
// none.
type KeyHash [8]byte

// String returns the hash in hexadecimal.
func (h KeyHash) String() string { return hex.EncodeToString(h[:]) }

// ParseKeyHash reads what [RecordID.Short] wrote, and is never the zero value. The error wraps [ErrInvalidKey].
func ParseKeyHash(s string) (KeyHash, error) {
	var h KeyHash
	if len(s) == 2*len(h) {
		if _, err := hex.Decode(h[:], []byte(s)); err == nil && h != (KeyHash{}) { // who asks a store for none gets all
			return h, nil
		}
	}
	return KeyHash{}, fmt.Errorf("%w: the hash of a key has %d hexadecimal digits", ErrInvalidKey, 2*len(h))
}

// ParseRecordID reads what [RecordID.String] wrote. The error wraps [ErrInvalidKey].
func ParseRecordID(s string) (RecordID, error) {
	var id RecordID
	if len(s) != 2*len(id) {
		return id, fmt.Errorf("%w: a record ID has %d hexadecimal digits, this has %d characters", ErrInvalidKey, 2*len(id), len(s))
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil {
		return RecordID{}, fmt.Errorf("%w: a record ID is hexadecimal", ErrInvalidKey)
	}
	return id, nil
}

// RecordID returns the identity of the key's record in a store that has no identity secret. With one,
// ask the receiver: [Receiver.RecordID].
func (k Key) RecordID() RecordID { return k.recordID(nil) }

func (k Key) recordID(secret []byte) RecordID {
	var id RecordID
	prefix := ScopeRange(k.Scope)
	copy(id[:8], prefix[:])

	var stack [256]byte
	b := append(stack[:0], "everonce/record/1\x00"...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(k.Scope))) //nolint:gosec // bounded by MaxScopeLen
	b = append(b, k.Scope...)
	b = append(b, k.ID...)
	var sum [sha256.Size]byte
	if len(secret) == 0 {
		sum = sha256.Sum256(b)
	} else {
		sum = keyedSum(secret, bytes.Clone(b)) // the copy keeps b on the stack
	}
	copy(id[8:], sum[:24])
	return id
}

// ScopeRange returns the first 8 bytes of every [RecordID] whose scope has the same first part as s. A store lists a
// tenant by this range of IDs, and then compares the scope itself.
func ScopeRange(s Scope) [8]byte {
	h := uint64(14695981039346656037) // FNV-1a; only the place in the order depends on it
	root := s.root()
	for i := range len(root) {
		h = (h ^ uint64(root[i])) * 1099511628211
	}
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], h)
	return b
}

// keyedSum is SHA-256, keyed by the identity secret where there is one.
func keyedSum(secret, b []byte) [sha256.Size]byte {
	if len(secret) == 0 {
		return sha256.Sum256(b)
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write(b)
	return [sha256.Size]byte(mac.Sum(nil))
}
