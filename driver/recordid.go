package driver

import (
	"encoding/hex"
	"fmt"
)

// RecordID is the identity of a key's record in a store: 8 bytes that stand for the first part of the scope, then 24
// bytes of a SHA-256 over the length-prefixed scope and ID (of an HMAC if an identity secret is set). It is binary
// and of fixed length, so that neither collation nor letter case matters, and the records of one tenant are next to
// each other in the order of IDs.
type RecordID [32]byte

// String returns the ID in hexadecimal.
func (id RecordID) String() string { return hex.EncodeToString(id[:]) }

// Short returns what logs, errors and spans show instead of the key: the text of its [KeyHash].
func (id RecordID) Short() string { return id.Hash().String() }

// Hash returns the short hash shown in logs. A [Lister] finds the record by it.
func (id RecordID) Hash() KeyHash { return KeyHash(id[8:16]) }

// KeyHash is the first 8 bytes of the hash in a [RecordID], which follow those that stand for the scope. The zero value is
// not a hash.
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
