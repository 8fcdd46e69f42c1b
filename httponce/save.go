package httponce

import (
	"fmt"
	"maps"
	"strconv"

	"github.com/everonce/everonce"
)

// Ending is what an answer means for its key.
type Ending uint8

const (
	// Saved means that the operation is done: duplicates get this answer.
	Saved Ending = iota + 1
	// Released means that the operation had no effect: the key may be used again.
	Released
	// Unknown means that it is unknown whether it had an effect: the policy decides. The first caller gets the answer.
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

// Save maps the status of an answer, "201", or a class from "2xx" to "5xx", to its Ending. A status takes precedence
// over its class, and what is missing is as the [Profile] says: Save{"409": Released} changes one status, Save{"5xx":
// Saved} a class. A 2xx cannot be Released, because every repetition would take effect again. A handler that answers
// with a 2xx but did nothing calls [NotDone].
type Save map[string]Ending

// DefaultSave returns a new copy of the default. Success, redirects and final refusals are saved. 401, 403, 421, 425
// and 429 mean that the request had no effect yet: released. 408 and 5xx leave it open: unknown. A status above 599 is
// always unknown.
func DefaultSave() Save {
	return Save{
		"2xx": Saved, "3xx": Saved, "4xx": Saved, "5xx": Unknown,
		"401": Released, "403": Released, "421": Released, "425": Released, "429": Released,
		"408": Unknown,
	}
}

// The statuses that end a request.
const (
	firstStatus = 200
	lastStatus  = 599
)

// saves is a checked Save: an ending for every status from firstStatus.
type saves [lastStatus - firstStatus + 1]Ending

func (s Save) compile(p Profile) (by saves, err error) {
	all := p.save()
	maps.Copy(all, s)
	for name, e := range all {
		if e < Saved || e > Unknown {
			return by, fmt.Errorf("%w: Save[%q] is not an Ending (%d)", everonce.ErrInvalidArgument, name, e)
		}
		from, to, ok := statuses(name)
		if !ok {
			return by, fmt.Errorf("%w: Save has %q, which is neither a status like \"201\" nor a class like \"4xx\"", everonce.ErrInvalidArgument, name)
		}
		for status := from; status <= to; status++ {
			if at := &by[status-firstStatus]; from == to || *at == 0 { // a single status overrides its class
				*at = e
			}
		}
	}
	for i, e := range by[:300-firstStatus] {
		if e == Released {
			return by, fmt.Errorf("%w: Save releases %d, a success: every repetition would take effect again (a handler that did nothing calls NotDone)",
				everonce.ErrInvalidArgument, firstStatus+i)
		}
	}
	return by, nil
}

func statuses(name string) (from, to int, ok bool) {
	if len(name) != 3 || name[0] < '2' || name[0] > '5' {
		return 0, 0, false
	}
	if name[1:] == "xx" {
		from = int(name[0]-'0') * 100
		return from, from + 99, true
	}
	n, err := strconv.ParseUint(name, 10, 16)
	return int(n), int(n), err == nil
}

// all reports whether every status from one on, up to another, is saved.
func (s *saves) all(from, to int) bool {
	for _, e := range s[from-firstStatus : to-firstStatus] {
		if e != Saved {
			return false
		}
	}
	return true
}

// of returns the ending of a status; one outside of all classes says nothing.
func (s *saves) of(status int) Ending {
	if status < firstStatus || status > lastStatus {
		return Unknown
	}
	return s[status-firstStatus]
}
