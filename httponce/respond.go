package httponce

import (
	"errors"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/everonce/everonce"
)

// verdict is what a call of the core came to.
type verdict struct {
	res everonce.Result[Answer]
	err error
	own *recorder // what the handler wrote in this call; nil where it was not called
	// met: another attempt was running when this call was first made; waited is how long this one waited for it.
	met    bool
	waited time.Duration
}

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
	x.told.Outcome, x.told.Waited = v.res.Outcome, v.waited
	if x.echoKey {
		x.w.Header()[x.header] = x.r.Header[x.header]
	}
	var e *everonce.Error
	errors.As(v.err, &e)
	switch v.res.Outcome {
	case everonce.Executed, everonce.NotRecorded, everonce.Failed, everonce.Unknown, everonce.Rejected:
		if v.res.Outcome == everonce.NotRecorded {
			x.log.ErrorContext(x.r.Context(), "httponce: answered, and NOT RECORDED: the next request with this key meets the policy for the unknown",
				"route", x.told.Route, "key", x.told.KeyHash, "error", v.err)
		}
		if v.own != nil {
			x.told.Status = v.own.status
			v.own.send()
			return
		}
	}
	switch v.res.Outcome {
	case everonce.Executed, everonce.Replayed: // executed without its handler: reconciled
		x.replay(v.res.Value, markReplayed)
	case everonce.Rejected:
		x.replayFailure(v.err)
	case everonce.Elided, everonce.Expired:
		x.replayRest(e)
	case everonce.InProgress, everonce.LeaseLost:
		x.problem(problemInProgress, max(retryAfter(e), time.Second))
	case everonce.Mismatch:
		x.problem(problemKeyReused, 0)
	case everonce.Unknown:
		x.problem(problemUnknown, 0)
	case everonce.Failed:
		x.problem(problemNotDone, time.Second)
	case everonce.Invalid:
		x.invalid(v.err)
	default:
		x.log.ErrorContext(x.r.Context(), "httponce: the store failed", "route", x.told.Route, "key", x.told.KeyHash, "error", v.err)
		x.problem(problemUnavailable, x.retryAfter)
	}
}

func retryAfter(e *everonce.Error) time.Duration {
	if e == nil {
		return 0
	}
	return e.RetryAfter
}

func (x *exchange) problem(p problem, retryAfter time.Duration) {
	x.told.Problem, x.told.Status = p.name, p.status
	x.refuse(x.w, p, retryAfter)
}

func (x *exchange) invalid(err error) {
	if errors.Is(err, everonce.ErrInvalidKey) {
		p := problemInvalidKey
		p.detail = err.Error()
		x.problem(p, 0)
		return
	}
	x.log.ErrorContext(x.r.Context(), "httponce: the call is wrong", "route", x.told.Route, "key", x.told.KeyHash, "error", err)
	x.problem(problemInternal, 0)
}

// replayFailure sends a saved answer of 400 and above.
func (x *exchange) replayFailure(err error) {
	var p *everonce.PermanentError
	if !errors.As(err, &p) {
		x.invalid(err)
		return
	}
	var a Answer
	if p.Detail == nil || a.decode(p.Detail) != nil {
		a = Answer{Status: failureStatus(p.Code), Elided: true}
	}
	x.replay(a, markReplayed)
}

// failureStatus returns the status that a code of ours stands for; what is not ours was refused for good.
func failureStatus(code string) int {
	status, err := strconv.Atoi(strings.TrimPrefix(code, failurePrefix))
	if err != nil || status < 400 || status > 599 {
		return http.StatusUnprocessableEntity
	}
	return status
}

// replayRest sends what is left of an answer that is not kept any more, or never was.
func (x *exchange) replayRest(e *everonce.Error) {
	a := Answer{Status: http.StatusOK, Elided: true}
	if e.Kind == everonce.ResultFailure {
		a.Status = failureStatus(string(e.Summary))
	} else if a.decode(e.Summary) != nil {
		a = Answer{Status: http.StatusOK, Elided: true}
	}
	a.Elided = true
	if e.Outcome == everonce.Expired {
		x.replay(a, markExpired)
		return
	}
	x.replay(a, markReplayed)
}

// replay sends a saved answer.
func (x *exchange) replay(a Answer, mark string) {
	if a.Elided && mark == markReplayed {
		mark = markElided
	}
	h := x.w.Header()
	maps.Copy(h, a.Header)
	if a.Elided {
		h.Del("Content-Length")
	}
	h.Set(x.marker, mark)
	if x.r.Header.Get("Origin") != "" {
		h.Add("Access-Control-Expose-Headers", x.marker)
	}
	x.told.Status = a.Status
	x.w.WriteHeader(a.Status)
	_, _ = x.w.Write(a.Body) //nolint:errcheck // the client has gone
}
