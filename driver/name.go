package driver

import (
	"fmt"
	"unicode/utf8"
)

// CheckName returns an error that wraps sentinel if a name is empty, too long, not UTF-8, or has a control
// character. The error does not contain the name.
func CheckName(sentinel error, what, s string, limit int) error {
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
			return checkRunes(sentinel, what, s)
		}
	}
	return nil
}

func checkRunes(sentinel error, what, s string) error {
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
