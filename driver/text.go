package driver

import (
	"encoding/hex"
	"fmt"
)

// Enumerations as text: some stores keep records as JSON, and tools print them.

func parseName[E interface {
	~uint8
	String() string
}](dst *E, text []byte, first, last E) error {
	for e := first; e <= last; e++ {
		if e.String() == string(text) {
			*dst = e
			return nil
		}
	}
	if string(text) == "none" {
		*dst = 0
		return nil
	}
	return fmt.Errorf("%w: %q is not a %T", ErrInvalidArgument, text, first)
}

// MarshalText returns the name of String.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses the name of String. The error wraps [ErrInvalidArgument].
func (s *State) UnmarshalText(text []byte) error {
	return parseName(s, text, StateClaimed, StateTombstone)
}

// MarshalText returns the name of String.
func (k ResultKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText parses the name of String. The error wraps [ErrInvalidArgument].
func (k *ResultKind) UnmarshalText(text []byte) error {
	return parseName(k, text, ResultValue, ResultElided)
}

// MarshalText returns the name of String.
func (s StepState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses the name of String. The error wraps [ErrInvalidArgument].
func (s *StepState) UnmarshalText(text []byte) error {
	return parseName(s, text, StepOpen, StepNotDone)
}

// MarshalText returns the hexadecimal form.
func (id RecordID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText parses the hexadecimal form. The error wraps [ErrInvalidKey].
func (id *RecordID) UnmarshalText(text []byte) error {
	parsed, err := ParseRecordID(string(text))
	if err == nil {
		*id = parsed
	}
	return err
}

// MarshalText returns the hexadecimal form.
func (n Nonce) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalText parses the hexadecimal form. The error wraps [ErrInvalidArgument].
func (n *Nonce) UnmarshalText(text []byte) error {
	var parsed Nonce
	if size, err := hex.Decode(parsed[:], text[:min(len(text), 2*len(parsed))]); err != nil || size != len(parsed) || len(text) != 2*len(parsed) {
		return fmt.Errorf("%w: a nonce has %d hexadecimal digits", ErrInvalidArgument, 2*len(parsed))
	}
	*n = parsed
	return nil
}
