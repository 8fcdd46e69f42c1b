package everonce

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/everonce/everonce/driver"
)

// Limits of a [PermanentError]: a longer text is cut, for the first caller too, and Truncated is set. The limit of
// its Detail is Options.MaxResult.
const (
	maxFailureCode    = 64
	maxFailureMessage = 1024
)

// PermanentError is a final failure, as saved: the first caller and every duplicate get it equal.
type PermanentError struct {
	// Code is for programs, such as "card_declined".
	Code string `json:"code"`
	// Message is for people.
	Message string `json:"message,omitempty"`
	// Detail is encoded by the application.
	Detail []byte `json:"detail,omitempty"`
	// Truncated: code or message was cut, or the detail dropped, because it was too long.
	Truncated bool `json:"truncated,omitempty"`
}

// Error returns code and message.
func (e *PermanentError) Error() string {
	switch {
	case e == nil:
		return "everonce: a nil *PermanentError"
	case e.Message == "":
		return e.Code
	}
	return e.Code + ": " + e.Message
}

// Permanent returns a final failure, for the work to return. err gives the message and may be nil. detail is kept
// unchanged, up to Options.MaxResult, and may be nil.
func Permanent(code string, err error, detail []byte) error {
	p := &PermanentError{Code: code}
	if err != nil {
		p.Message = err.Error()
	}
	if len(detail) > 0 {
		p.Detail = append([]byte(nil), detail...)
	}
	return p.normalized(len(p.Detail))
}

// normalized returns p as it will be replayed: within the limits, and valid UTF-8.
func (e *PermanentError) normalized(maxDetail int) *PermanentError {
	n := *e
	if n.Code == "" {
		n.Code = "failed"
	}
	var cutCode, cutMessage bool
	n.Code, cutCode = cutText(n.Code, maxFailureCode)
	n.Message, cutMessage = cutText(n.Message, maxFailureMessage)
	if len(n.Detail) > maxDetail {
		n.Detail, n.Truncated = nil, true
	}
	if len(n.Detail) == 0 {
		n.Detail = nil
	}
	n.Truncated = n.Truncated || cutCode || cutMessage
	return &n
}

// withoutDetail returns e as it is saved if the store refuses it because of its size.
func (e *PermanentError) withoutDetail() *PermanentError {
	n := *e
	n.Detail, n.Truncated = nil, true
	return &n
}

// savedBy saves e by write, and without its detail if the store refuses it because of its size. It returns the
// saved one.
func (e *PermanentError) savedBy(write func(driver.SavedResult) error) (*PermanentError, error) {
	err := write(e.save())
	if errors.Is(err, driver.ErrTooLarge) && e.Detail != nil {
		e = e.withoutDetail()
		err = write(e.save())
	}
	return e, err
}

func cutText(s string, limit int) (string, bool) {
	cut := false
	if !utf8.ValidString(s) {
		b := make([]rune, 0, len(s))
		for _, r := range s {
			b = append(b, r)
		}
		s, cut = string(b), true
	}
	if len(s) <= limit {
		return s, cut
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit], true
}

func (e *PermanentError) save() driver.SavedResult {
	data, err := json.Marshal(e)
	if err != nil { // strings, bytes and a bool: it cannot happen
		return driver.SavedResult{Kind: driver.ResultElided, Summary: []byte(e.Code)}
	}
	return driver.SavedResult{Kind: driver.ResultFailure, Codec: "failure/1", Data: data, Summary: []byte(e.Code)}
}

func loadFailure(res driver.SavedResult) (*PermanentError, error) {
	var p PermanentError
	if err := json.Unmarshal(res.Data, &p); err != nil {
		return nil, fmt.Errorf("%w: failure: %w", ErrUndecodable, err)
	}
	return &p, nil
}
