package httponce

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce/internal/wire"
	"github.com/everonce/everonce/session"
)

// Sessions returns the handler that registers the sessions of a [HandleSession]: by POST, with a secret that the client
// has chosen. PUT renews a session, and tells its mark; DELETE ends it. docs/reference/http-sessions.md lists headers
// and answers. A registration, and each of the others, may be repeated: with the same secret it is the same session.
//
// principal is the same as for HandleSession. Its sessions are limited by [session.Config].PerPrincipal. Set that: by
// default it is no bound, so one caller can take all sessions that there may be, and then no other caller can register.
// Of opts it uses ProblemBase, RetryAfter, Log, and Principal, but all must be valid. The error wraps
// [everonce.ErrInvalidArgument].
func Sessions[Tx any](host session.Host[Tx], principal Principal, opts *Options) (http.Handler, error) {
	if host == nil || principal == nil {
		return nil, fmt.Errorf("%w: the host or the principal is nil", everonce.ErrInvalidArgument)
	}
	s, err := opts.settings()
	if err != nil {
		return nil, err
	}
	s.observe = nil // these are no operations
	return &sessionsHandler[Tx]{settings: s, host: host, principal: principal}, nil
}

type sessionsHandler[Tx any] struct {
	*settings
	host      session.Host[Tx]
	principal Principal
}

func (h *sessionsHandler[Tx]) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{settings: h.settings, route: h.base, w: w, r: r, served: Served{Method: r.Method, Route: "sessions"}}
	needed := []string{wire.SessionHeader}
	var op session.Op
	switch r.Method {
	case http.MethodPost:
		op, needed = session.Register, nil
	case http.MethodPut:
		op = session.KeepAlive
	case http.MethodDelete:
		op = session.End
	default:
		w.Header().Set("Allow", "POST, PUT, DELETE")
		http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
		return
	}
	c, secret, wrong := sessionOf(r.Header, needed...)
	if wrong != "" {
		p := wire.InvalidSession
		p.Detail = wrong
		x.problem(p, 0)
		return
	}
	who, ok := x.sender(h.principal)
	if !ok {
		return
	}
	c.Op, c.Nonce, c.Number = op, wire.SessionNonce(who, secret), 0
	switch op {
	case session.Register:
		c.Session, c.Mark, c.Principal = 0, 0, scopePart(who, maxPrincipalPart)
	case session.KeepAlive:
		c.Beats = []session.Beat{{Session: c.Session, Nonce: c.Nonce, Epoch: c.Epoch, Mark: c.Mark}}
	}
	answer, err := h.host.Apply(r.Context(), &c, nil)
	if len(answer.Beats) > 0 {
		answer.Err = answer.Beats[0]
	}
	switch {
	case err != nil:
		h.answerHostError(x, err)
	case op == session.End && answer.Err == session.ErrSessionExpired: // ended by an attempt whose answer was lost, or by its lease
		h.answerLease(x, http.StatusNoContent)
	case op == session.Register && answer.Err == session.ErrMismatch:
		p := wire.InvalidSession
		p.Detail = wire.SessionSecret + ": it was used for a registration with another " + wire.SessionOrdered + "."
		x.problem(p, 0)
	case answer.Err != 0:
		x.rejectSession(&answer)
	case op == session.Register:
		w.Header().Set(wire.SessionHeader, wire.FormatInteger(uint64(answer.Session)))
		w.Header().Set(wire.SessionEpoch, wire.FormatInteger(answer.Epoch))
		h.answerLease(x, http.StatusCreated)
	default:
		h.answerLease(x, http.StatusNoContent)
	}
}

// answerLease answers with the lease. Scripts of other origins may read it.
func (h *sessionsHandler[Tx]) answerLease(x *exchange, status int) {
	config, header := h.host.Config(), x.w.Header()
	header.Set(wire.SessionLease, wire.FormatLease(config.Lease))
	header.Set(wire.SessionWindow, wire.FormatInteger(config.Window))
	header.Set("Cache-Control", "no-store")
	if len(x.r.Header["Origin"]) > 0 {
		header.Add("Access-Control-Expose-Headers", strings.Join([]string{wire.SessionHeader, wire.SessionEpoch, wire.SessionLease, wire.SessionWindow}, ", "))
	}
	x.w.WriteHeader(status)
}

// answerHostError answers where the host has no answer. To repeat the request is safe in every case.
func (h *sessionsHandler[Tx]) answerHostError(x *exchange, err error) {
	if x.r.Context().Err() == nil {
		x.log.ErrorContext(x.r.Context(), "httponce: the host of sessions failed", "route", x.served.Route, "error", err)
	}
	if errors.Is(err, everonce.ErrOutcomeUnknown) {
		x.problem(wire.CommitLost, time.Second)
		return
	}
	x.problem(wire.Unavailable, x.retryAfter)
}
