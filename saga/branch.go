package saga

import (
	"fmt"
	"strings"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/internal/sqlqueue"
)

// Branch names one action, or its compensation, to a participant. It is sent in headers of HTTP or of a message.
type Branch struct {
	// Saga is the saga's ID, Step the step's name.
	Saga, Step string
	// Compensating reports whether this is the compensation.
	Compensating bool
}

// The names of the headers. Their values are the saga's ID, the step's name, and "action" or "compensation".
const (
	HeaderSaga      = "Saga-Id"
	HeaderStep      = "Saga-Step"
	HeaderOperation = "Saga-Operation"
)

// Headers returns the branch as headers.
func (b Branch) Headers() map[string]string {
	operation := "action"
	if b.Compensating {
		operation = "compensation"
	}
	return map[string]string{HeaderSaga: b.Saga, HeaderStep: b.Step, HeaderOperation: operation}
}

// ParseBranch reads a branch from headers. get returns the value of a header, or "" if it is missing, as
// http.Header.Get does. The error wraps [everonce.ErrInvalidArgument].
func ParseBranch(get func(name string) string) (Branch, error) {
	b := Branch{Saga: get(HeaderSaga), Step: get(HeaderStep)}
	switch operation := get(HeaderOperation); operation {
	case "action":
	case "compensation":
		b.Compensating = true
	default:
		return b, fmt.Errorf("saga: %w: the header %s is missing, or neither action nor compensation", everonce.ErrInvalidArgument, HeaderOperation)
	}
	return b, b.check()
}

func (b Branch) check() error {
	if b.Saga == "" || b.Step == "" || len(b.Saga) > sqlqueue.MaxText || len(b.Step) > maxStep || !sqlqueue.Stores(b.Saga) || !sqlqueue.Stores(b.Step) {
		return fmt.Errorf("saga: %w: the saga's ID or the step's name is missing, too long, or not UTF-8 without NUL", everonce.ErrInvalidArgument)
	}
	return nil
}

// id returns an ID that an action shares with its compensation.
func (b Branch) id() string {
	escape := strings.NewReplacer("%", "%25", "/", "%2F")
	return escape.Replace(b.Saga) + "/" + escape.Replace(b.Step)
}
