package everonce

import "fmt"

// parseName sets dst to the value between first and last whose String is text.
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
	return fmt.Errorf("%w: %q is no %T", ErrInvalidArgument, text, first)
}

// MarshalText returns the name of String.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText parses that name; the error wraps [ErrInvalidArgument].
func (o *Outcome) UnmarshalText(text []byte) error { return parseName(o, text, Executed, outcomeEnd-1) }

// MarshalText returns the name of String.
func (p Policy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText parses that name; the error wraps [ErrInvalidArgument].
func (p *Policy) UnmarshalText(text []byte) error { return parseName(p, text, Reexecute, Reconcile) }
