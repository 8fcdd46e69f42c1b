package httponce

import (
	"fmt"
	"maps"
	"strconv"

	"github.com/everonce/everonce"
)

// Ending says what an answer means for its key.
type Ending uint8

const (
	// Saved: the operation is done; duplicates get this answer.
	Saved Ending = iota + 1
	// Released: nothing took hold; the key may be used again.
	Released
	// Unknown: nobody knows whether it took hold; the policy for the unknown decides. The first caller gets
	// the answer as it is.
	Unknown
)

// String returns the ending's name.
func (e Ending) String() string {
	switch e {
	case Saved:
		return "saved"
	case Released:
		return "released"
	case Unknown:
		return "unknown"
	}
	return "none"
}

// Save says what becomes of a key, by status: "201", or a class like "4xx". The status itself counts before its
// class, and what is not named is as in [DefaultSave]. It may be copied and changed until a middleware was
// made with it.
type Save map[string]Ending

// DefaultSave returns the default, to be read, or changed: what is done, moved or refused for good is saved. 401, 403, 421,
// 425 and 429 say that the request did not get as far as its effect. 408 and 5xx say nothing about the
// effect.
func DefaultSave() Save {
	return Save{
		"2xx": Saved, "3xx": Saved, "4xx": Saved, "5xx": Unknown,
		"401": Released, "403": Released, "421": Released, "425": Released, "429": Released,
		"408": Unknown,
	}
}

// Stripe returns what Stripe's first API does: once the handler has begun, its answer is the answer, failures
// of the server included.
func Stripe() Save {
	s := DefaultSave()
	s["5xx"], s["408"] = Saved, Saved
	return s
}

// saves is a checked Save, by status.
type saves map[int]Ending

func (s Save) checked() (saves, error) {
	all := DefaultSave()
	maps.Copy(all, s)
	by := saves{}
	for name, e := range all {
		if e < Saved || e > Unknown {
			return nil, fmt.Errorf("%w: Save[%q] is no Ending", everonce.ErrInvalidArgument, name)
		}
		if len(name) == 3 && name[1:] == "xx" && name[0] >= '2' && name[0] <= '5' {
			by[int(name[0]-'0')] = e
			continue
		}
		status, err := strconv.Atoi(name)
		if err != nil || status < 200 || status > 599 {
			return nil, fmt.Errorf("%w: Save has %q, which is neither a status like \"201\" nor a class like \"4xx\"", everonce.ErrInvalidArgument, name)
		}
		by[status] = e
	}
	return by, nil
}

// of returns the ending of a status; one outside of all classes says nothing.
func (s saves) of(status int) Ending {
	if e, ok := s[status]; ok {
		return e
	}
	if e, ok := s[status/100]; ok {
		return e
	}
	return Unknown
}
