package httponce

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/httponce/internal/wire"
)

// verdict is what a call of the core came to.
type verdict struct {
	res everonce.Result[Answer]
	err error
	// own is the answer that the handler wrote in this call, and ending the meaning that it was given; nil and 0 if it was
	// not called, or if it wrote no answer that is to be sent.
	own    *recorder
	ending Ending
	// tx: the effects were in a transaction.
	tx bool
	// concurrent: another attempt was running when this call first claimed; waited is how long this call waited for it.
	concurrent bool
	waited     time.Duration
}

// sendsOwn reports whether the client gets what the handler wrote in this call. In every other case that is
// dropped: it was not committed, or the record has another answer.
func (v *verdict) sendsOwn() bool {
	if v.own == nil {
		return false
	}
	switch v.res.Outcome {
	case everonce.Executed, everonce.NotRecorded:
		return true
	case everonce.Rejected: // by this attempt, and not by one that took the record from it
		return v.res.Attempt != 0 && v.ending == Saved
	case everonce.Failed, everonce.Unknown: // as the handler's answer says, and not for another reason
		return v.ending == Released || v.ending == Unknown
	}
	return false
}

// lostCommit reports whether the outcome of this call's own commit is unknown. If the record says unknown, it means an
// earlier attempt.
func (v *verdict) lostCommit() bool { return v.tx && v.res.Attempt != 0 }

// statusError is the error of an attempt whose answer is not to be saved.
type statusError int

func (e statusError) Error() string { return "the handler answered " + strconv.Itoa(int(e)) }

const failurePrefix = "http_"

func failureCode(status int) string { return failurePrefix + strconv.Itoa(status) }

// The values of the marker.
const (
	markReplayed = "true"
	markElided   = "elided"
	markExpired  = "expired"
)

// answer sends what a verdict comes to.
func (x *exchange) answer(v verdict) {
	x.served.Outcome, x.served.Waited = v.res.Outcome, v.waited
	x.logVerdict(&v)
	if v.own != nil {
		if v.sendsOwn() || v.own.Sending() {
			x.served.Status, x.served.Problem = v.own.status, v.own.upstream
			if v.own.marked() {
				wire.MarkUnknown(x.w) // inside another protected handler, whatever that one saves
			}
			v.own.send()
			return
		}
		v.own.discard()
	}
	x.echo(x.w.Header())
	e := errorOf(v.err)
	switch v.res.Outcome {
	case everonce.Executed, everonce.Replayed, everonce.NotRecorded: // where nothing was written now, it was reconciled
		v.res.Value.normalize()
		if !v.res.Value.hasStatus() {
			x.log.ErrorContext(x.r.Context(), "httponce: a reconciled or settled answer has no status that can be sent", "route", x.served.Route, "key", x.keyHash(), "status", v.res.Value.Status)
			x.problem(wire.Unreadable, x.retryAfter)
			return
		}
		x.replay(v.res.Value, markReplayed)
	case everonce.Rejected:
		x.replayFailure(&v)
	case everonce.Elided, everonce.Expired:
		x.replayRest(e)
	case everonce.InProgress, everonce.LeaseLost:
		x.problem(wire.InProgress, max(e.RetryAfter, time.Second))
	case everonce.Mismatch:
		x.problem(wire.KeyReused, 0)
	case everonce.Unknown:
		x.unknown(&v, e)
	case everonce.Failed:
		x.problem(wire.NotDone, max(e.RetryAfter, time.Second))
	case everonce.Invalid:
		x.problem(wire.Internal, 0)
	default:
		x.answerStoreError(v.err)
	}
}

// noError is the error of a call that had none.
var noError everonce.Error

// errorOf returns the core's error in err; never nil.
func errorOf(err error) *everonce.Error {
	if e, ok := errors.AsType[*everonce.Error](err); ok {
		return e
	}
	return &noError
}

// logVerdict logs what is not logged elsewhere. The receiver logs outcomes that need a person (everonce.Options.Log),
// but only for operations with a key.
func (x *exchange) logVerdict(v *verdict) {
	say := x.log.ErrorContext
	var text string
	switch v.res.Outcome {
	case everonce.Invalid: // not by its key: what parseKey and scopeOf return the core takes
		text = "httponce: invalid call of the engine"
		if errors.Is(v.err, everonce.ErrNested) {
			text = "httponce: the handler is protected twice with the same key (remove one of the middlewares)"
		}
	case everonce.StoreFailed, everonce.Unknown:
		if x.key.ID != "" {
			return
		}
		text = "httponce: the store failed"
		if v.res.Outcome == everonce.Unknown {
			text = "httponce: the answer to a commit was lost"
		}
	case everonce.Failed:
		switch {
		case v.sendsOwn() && errors.Is(v.err, everonce.ErrStore):
			text, say = "httponce: the key could not be released: it is taken until its lease ends", x.log.WarnContext
		case v.sendsOwn() && onlyStatus(v.err), x.r.Context().Err() != nil: // the client was answered, or has gone
			return
		default:
			text = "httponce: not done"
		}
	default:
		return
	}
	say(x.r.Context(), text, "route", x.served.Route, "key", x.keyHash(), "error", v.err)
}

// onlyStatus reports whether an error says no more than what the handler answered.
func onlyStatus(err error) bool {
	_, ok := errors.AsType[statusError](err)
	return ok
}

func (x *exchange) problem(p wire.Problem, retryAfter time.Duration) {
	x.served.Problem, x.served.Status = p.Name, p.Status
	p.Send(x.w, x.problems, retryAfter)
}

// unknown answers a request whose outcome is unknown. If the next request would find out, or ask, the answer has a
// Retry-After.
func (x *exchange) unknown(v *verdict, e *everonce.Error) {
	switch {
	case x.key.ID != "" && !v.lostCommit():
		p := wire.Unknown
		if e.RetryAfter > 0 {
			p.Detail = "An earlier attempt ended, and it could not be found out yet whether it took effect. Send the same request again later: that asks again."
		}
		x.problem(p, e.RetryAfter)
	case x.key.ID == "":
		p := wire.CommitLost
		p.Status = http.StatusInternalServerError
		p.Detail = "It is not known what was committed, and the request had no key by which its repetition would be known."
		x.problem(p, 0)
	default:
		x.problem(wire.CommitLost, max(e.RetryAfter, time.Second))
	}
}

// answerStoreError answers where the store has no answer, or one that cannot be read here.
func (x *exchange) answerStoreError(err error) { x.problem(problemOfStore(err), x.retryAfter) }

func problemOfStore(err error) wire.Problem {
	for _, unreadable := range [...]error{everonce.ErrUndecodable, driver.ErrCorruptRecord, driver.ErrNewerRecord} {
		if errors.Is(err, unreadable) {
			return wire.Unreadable
		}
	}
	return wire.Unavailable
}

// replayFailure sends a permanent failure: a saved answer of 400 and above, or what the application, its
// classifier or a settlement has refused in its own words.
func (x *exchange) replayFailure(v *verdict) {
	mark := markReplayed
	if v.res.Attempt != 0 {
		mark = "" // by this very attempt
	}
	x.replay(failureAnswer(v.err, x.problems), mark)
}

// failureAnswer returns the answer that a permanent failure stands for: always the same for the same failure.
func failureAnswer(err error, form wire.Form) Answer {
	p := new(everonce.PermanentError)
	errors.As(err, &p)
	if status, ok := failureStatus(p.Code); ok {
		var a Answer
		if p.Detail == nil || a.decode(p.Detail) != nil {
			a = Answer{Status: status, Elided: true}
		}
		return a
	}
	refused := wire.Refused
	refused.Detail = p.Message
	header, body := refused.Answer(form, p.Code, 0)
	return Answer{Status: refused.Status, Header: header, Body: body}
}

// failureStatus returns the status that a code of ours stands for.
func failureStatus(code string) (status int, ours bool) {
	text, ours := strings.CutPrefix(code, failurePrefix)
	if !ours {
		return 0, false
	}
	status, err := strconv.Atoi(text)
	return status, err == nil && status >= 400 && status <= 599
}

// replayRest sends what is left of an answer that is not kept any more, or never was.
func (x *exchange) replayRest(e *everonce.Error) {
	a := restOf(e, x.problems)
	if e.Outcome == everonce.Expired {
		x.replay(a, markExpired)
		return
	}
	x.replay(a, markReplayed)
}

// restOf returns what an expired or elided answer has left.
func restOf(e *everonce.Error, form wire.Form) (a Answer) {
	if e.Kind == driver.ResultFailure {
		a = failureAnswer(&everonce.PermanentError{Code: string(e.Summary)}, form)
	} else if a.decode(e.Summary) != nil {
		a = Answer{Status: http.StatusOK}
	}
	a.Elided = true
	return a
}
