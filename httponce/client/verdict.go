package client

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/httponce/internal/wire"
)

// call is an operation of a session. A nil call is a request without a session.
//
// Its outcome follows one rule. Each attempt may have executed it, unless there is proof that the attempt did not, and
// will not. Once an attempt may have executed it, only the answer that the service keeps for the number ends the
// operation as answered; otherwise the outcome is unknown. Without such an attempt it was not executed.
type call struct {
	t      *Transport
	live   *live
	number uint64
	maybe  bool // an attempt may have executed it
	busy   int  // how many attempts found a busy session; they are not counted
}

// put writes the headers of an attempt, with the mark of the moment.
func (c *call) put(h http.Header) {
	c.live.put(h)
	h.Set(wire.SessionRequest, wire.FormatInteger(c.number))
	h.Set(wire.SessionMark, wire.FormatInteger(c.live.calls.Mark()))
}

// over returns why nothing may be sent any more.
func (c *call) over() error {
	if c == nil {
		return nil
	}
	return c.live.calls.Gone()
}

// noteAttempt records whether an attempt may have executed the operation.
func (c *call) noteAttempt(a *attempt) {
	switch {
	case c == nil || c.hadNoEffect(a):
		return
	case c.t.set.MaxAttempts > 1 && a.status() == http.StatusConflict && c.answeredBySession(a.resp):
		c.busy++
	}
	c.maybe = true
}

// idle returns how many attempts are not counted.
func (c *call) idle() int {
	if c == nil {
		return 0
	}
	return c.busy
}

// hadNoEffect reports whether there is proof that an attempt did not execute the operation, and will not.
func (c *call) hadNoEffect(a *attempt) bool {
	if a.unsent {
		return true
	}
	sent := a.sends.Load()
	if a.resp == nil {
		op := (*net.OpError)(nil)
		return sent == 0 && errors.As(a.err, &op) && op.Op == "dial" // there was no connection
	}
	switch code := a.resp.StatusCode; {
	case sent > 1: // net/http has sent it again: this is the last copy's answer
		return false
	case c.answeredBySession(a.resp):
		return a.resp.Header.Get(wire.SessionOutcome) == wire.OutcomeNone
	case code == http.StatusRequestTimeout, code == http.StatusConflict:
		return false
	case code >= http.StatusInternalServerError: // of who is in between
		d := a.problem()
		return d.Is(wire.Unreachable)
	default: // who refuses or redirects it has not passed it on
		return code >= http.StatusMultipleChoices
	}
}

// bySession reports whether an answer comes from the session's service and is for this number, and not from an
// intermediary or a service without sessions.
func (c *call) answeredBySession(resp *http.Response) bool {
	number, found, problem := wire.SessionInteger(resp.Header, wire.SessionRequest)
	return found && problem == "" && number == c.number
}

// end gives the number up, and says what became of the operation.
func (c *call) end(op *operation, resp *http.Response, err error) (*http.Response, error) {
	if err != nil {
		return nil, c.giveUp(err)
	}
	bySession := c.answeredBySession(resp)
	if bySession && resp.Header.Get(wire.SessionOutcome) == wire.OutcomeKept {
		c.live.calls.End(c.number, true)
		c.live.accepted(op.begun)
		return resp, nil
	}
	_, refusal := refusalOf(resp)
	switch {
	case bySession && refusal != 0:
		c.live.note(refusal)
		err = refusal
	case !bySession && resp.StatusCode < http.StatusMultipleChoices:
		err = ErrNotHeeded
	case c.maybe:
		err = fmt.Errorf("the last answer is %d", resp.StatusCode)
	default:
		c.live.calls.End(c.number, false)
		return resp, nil
	}
	drained(resp.Body)
	return nil, c.giveUp(err)
}

// giveUp gives the number up, and says why there is no answer. Of an unknown outcome the cause is text only: who looks
// for an error that elsewhere means that nothing was done must not find it.
func (c *call) giveUp(err error) error {
	if !c.maybe {
		c.live.calls.End(c.number, false)
		return fmt.Errorf("client: request %d of session %d was not executed: %w", c.number, c.live.id, err)
	}
	c.live.calls.GiveUp(c.number)
	if errors.Is(err, ErrNotHeeded) {
		return fmt.Errorf("client: request %d of session %d: %w: %w", c.number, c.live.id, driver.ErrOutcomeUnknown, err)
	}
	return fmt.Errorf("client: request %d of session %d: %w: %v", c.number, c.live.id, driver.ErrOutcomeUnknown, err) //nolint:errorlint // see above
}

// counting counts how often net/http writes the request's header.
func counting(sends *atomic.Int32) *httptrace.ClientTrace {
	return &httptrace.ClientTrace{WroteHeaders: func() { sends.Add(1) }}
}
