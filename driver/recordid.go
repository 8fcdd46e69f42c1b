package driver

import (
	"encoding/hex"
	"fmt"
)

// RecordID identifies a key's record in a store. It is 8 bytes derived from the first part of the scope, then 24
// bytes of a SHA-256 over the length-prefixed scope and ID (of an HMAC if an identity secret is set). It is binary
// and of fixed length, so collation and letter case do not matter. The records of a tenant are adjacent in the
// order of IDs.
type RecordID [32]byte

// String returns the ID in hexadecimal.
func (id RecordID) String() string { return hex.EncodeToString(id[:]) }

// Short returns the text of the [KeyHash], which logs, errors and spans show instead of the key.
func (id RecordID) Short() string { return id.Hash().String() }

// Hash returns the short hash shown in logs. A [Lister] finds the record by it.
func (id RecordID) Hash() KeyHash { return KeyHash(id[8:16]) }

// KeyHash is the first 8 bytes of the hash in a [RecordID], after the 8 bytes of the scope. The zero value is not a
// hash.
type KeyHash [8]byte

// String returns the hash in hexadecimal.
func (h KeyHash) String() string { return hex.EncodeToString(h[:]) }

// ParseKeyHash parses the text of [RecordID.Short]. It never returns the zero value without an error. The error wraps
// [ErrInvalidKey].
func ParseKeyHash(s string) (KeyHash, error) {
	var h KeyHash
	if len(s) == 2*len(h) {
		if _, err := hex.Decode(h[:], []byte(s)); err == nil && h != (KeyHash{}) { // a listing by the zero hash would select all records
			return h, nil
		}
	}
	return KeyHash{}, fmt.Errorf("%w: a key hash has %d hexadecimal digits", ErrInvalidKey, 2*len(h))
}

// ParseRecordID parses the text of [RecordID.String]. The error wraps [ErrInvalidKey].
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
