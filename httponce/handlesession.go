package httponce

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/httponce/internal/wire"
	"github.com/everonce/everonce/session"
)

// HandleSession returns a handler for the numbered requests of client sessions, whose effects and whose kept answer
// commit together (transactional mode): exactly once, as long as the session lives and the host keeps what it
// committed. The answer is sent after the commit. [Sessions] registers the sessions, and package httponce/client has
// the client. "Rolled back" needs a host with transactions, as session/sqlsession is: over one in memory,
// session/memsession, a handler must have had no effect when it answers 400 or above, returns an error, or panics,
// since nothing takes that back.
//
// Several handlers may share one host and principal. Then they share the sessions, and a session has one numbering over
// all of them.
//
// A request names its session and its number by the headers that docs/reference/http-sessions.md lists. Every request
// needs them, whatever its method; one that also has a key is refused, since it would have two names. A session is its
// principal's alone: with another one's, or with another secret, it is unknown. Refusals are problem documents.
//
// The rules for handle, and for its effects, are as for [HandleTx]: below 400 they are committed, and otherwise rolled
// back. Where HandleTx saves such a refusal, it is kept for its number here too. Where HandleTx says that the key may
// be used again, the number may be used again, for the same request.
//
// An answer larger than [session.Config].MaxResult, or than [Route.MaxAnswer], is sent, but not kept: duplicates get
// status and headers, marked "elided". The host must keep 4096 bytes at least.
//
// The handler's context ends with the transaction's limit, if the host has one, and with [Route.Deadline]. These
// options have no meaning for a session, and are refused: CheckKey, KeyRule, KeyJSON, KeyFrom, Lifetime, Lease, Wait,
// Policy, Reconcile, AnswerWithin, FailOpen, EchoKey, MaxWaiting, MaxStillRunning, and a Save by which an answer below
// 400 is not kept. Methods and Required are not used. The error wraps [everonce.ErrInvalidArgument].
func HandleSession[Tx any](host session.Host[Tx], principal Principal, handle func(http.ResponseWriter, *http.Request, Tx) error, opts *Options) (http.Handler, error) {
	if host == nil || principal == nil || handle == nil {
		return nil, fmt.Errorf("%w: the host, the principal or the handler is nil", everonce.ErrInvalidArgument)
	}
	if err := opts.checkSession(); err != nil {
		return nil, err
	}
	s, err := opts.settings()
	if err != nil {
		return nil, err
	}
	for _, rt := range s.routes {
		if err := rt.checkSession(); err != nil {
			return nil, rt.in(err)
		}
	}
	limit := host.Config().MaxResult
	if limit < driver.MaxSummaryLen {
		return nil, fmt.Errorf("%w: the host's MaxResult is %d; a status and headers need %d", everonce.ErrInvalidArgument, limit, driver.MaxSummaryLen)
	}
	s.pieceSize = limit
	return &sessionHandler[Tx]{settings: s, host: host, principal: principal, handle: handle, limit: limit}, nil
}

// checkSession refuses options that have no meaning for a session.
func (o *Options) checkSession() error {
	if o == nil {
		return nil
	}
	return rejectMeaningless("HandleSession", []meaning{
		{o.EchoKey, "EchoKey", "there is no key"},
		{o.MaxWaiting != 0, "MaxWaiting", "the host says who waits"},
		{o.MaxStillRunning != 0, "MaxStillRunning", "no client is answered before its handler has returned"},
	})
}

func (rt *route) checkSession() error {
	for _, name := range rt.sum.headers {
		if slices.Contains(wire.SessionHeaders, name) {
			return fmt.Errorf("%w: Compare.Headers: %s is the session's", everonce.ErrInvalidArgument, name)
		}
	}
	return rejectMeaningless("HandleSession", []meaning{
		{rt.CheckKey != nil, "CheckKey", "there is no key"},
		{rt.KeyJSON != "", "KeyJSON", "there is no key"},
		{rt.KeyFrom != nil, "KeyFrom", "there is no key"},
		{rt.Lifetime != everonce.Lifetime{}, "Lifetime", "an answer is kept until the client's mark passes it, or the session ends"},
		{rt.Lease != 0, "Lease", "it is the session's (session.Config)"},
		{rt.Wait != 0, "Wait", "the host says how long a copy waits"},
		{rt.Policy != 0, "Policy", "what did not commit did not happen, so there is no unknown"},
		{rt.Reconcile != nil, "Reconcile", "what did not commit did not happen, so there is nothing to ask"},
		{rt.AnswerWithin != 0, "AnswerWithin", "a transaction is bounded by the host"},
		{rt.FailOpen, "FailOpen", "the effects are in the host that would be down"},
		{!rt.save.all(firstStatus, http.StatusBadRequest), "Save of 2xx and 3xx", "an answer below 400 is committed with its effects, so it is kept"},
	})
}

type sessionHandler[Tx any] struct {
	*settings
	host      session.Host[Tx]
	principal Principal
	handle    func(http.ResponseWriter, *http.Request, Tx) error
	limit     int // of what the host keeps
}

func (h *sessionHandler[Tx]) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rt, name := h.routeOf(r)
	x := h.exchangeOf(w, r, rt, name)
	taken := false
	defer x.releaseUnless(&taken)
	c, ok := x.sessionCommand(h.principal)
	if !ok {
		return
	}
	x.number = wire.FormatInteger(c.Number)
	w.Header().Set(wire.SessionRequest, x.number)
	w.Header().Set(wire.SessionOutcome, wire.OutcomeNone)
	if !x.readBody() || !x.readFingerprint() {
		return
	}
	w.Header().Del(wire.SessionOutcome) // which is not known yet
	c.Fingerprint = x.sum.Sum
	x.served.Panicked = true // unless it returns
	taken = true
	defer x.end()
	h.answer(x, h.apply(x, &c))
	x.served.Panicked = false
}

// sessionCommand reads which request of which session this is; it refuses the request, and returns false, where that
// cannot be known.
func (x *exchange) sessionCommand(principal Principal) (c session.Command, ok bool) {
	h := x.r.Header
	if !slices.ContainsFunc(wire.SessionHeaders, func(name string) bool { return len(h[name]) > 0 }) {
		x.reject(wire.MissingSession, 0)
		return c, false
	}
	c, secret, wrong := sessionOf(h, wire.SessionHeader, wire.SessionRequest)
	if wrong == "" && len(h[x.header]) > 0 {
		wrong = "The request has a key too (" + x.header + "): it must have one name."
	}
	if wrong != "" {
		p := wire.InvalidSession
		p.Detail = wrong
		x.reject(p, 0)
		return c, false
	}
	who, ok := x.sender(principal)
	if !ok {
		return c, false
	}
	c.Op, c.Nonce = session.Request, wire.SessionNonce(who, secret)
	return c, true
}

// sessionOf reads the headers of a session. wrong says what is wrong with one, or which of the needed ones is missing.
func sessionOf(h http.Header, needed ...string) (c session.Command, secret []byte, wrong string) {
	secret, found, problem := wire.Secret(h)
	if !found {
		problem = "it is missing"
	}
	if problem != "" {
		return c, nil, wire.SessionSecret + ": " + problem + "."
	}
	var id uint64
	for _, f := range [...]struct {
		name string
		to   *uint64
	}{{wire.SessionHeader, &id}, {wire.SessionRequest, &c.Number}, {wire.SessionMark, &c.Mark}, {wire.SessionEpoch, &c.Epoch}} {
		*f.to, found, problem = wire.SessionInteger(h, f.name)
		if !found && slices.Contains(needed, f.name) {
			problem = "it is missing"
		}
		if problem != "" {
			return c, nil, f.name + ": " + problem + "."
		}
	}
	c.Session = session.ID(id)
	if c.Ordered, problem = wire.SessionFlag(h, wire.SessionOrdered); problem != "" {
		return c, nil, wire.SessionOrdered + ": " + problem + "."
	}
	return c, secret, ""
}

// applied is what a request's command came to.
type applied struct {
	verdict
	answer session.Reply
	worked error // the handler's own, in its last call
	kept   bool  // of the handler's answer
}

// apply has the request executed once. A refusal that is to be kept is saved in a second transaction, after its effects
// were rolled back. If another attempt has the number by then, its answer is replayed.
func (h *sessionHandler[Tx]) apply(x *exchange, c *session.Command) *applied {
	a := &applied{verdict: verdict{tx: true}}
	a.res.Attempt = 1
	ctx, detach, end := untilWork(x)
	defer end()
	a.answer, a.err = h.host.Apply(ctx, c, func(ctx context.Context, tx Tx, _ []byte) ([]byte, error) {
		if err := detach(); err != nil {
			return nil, err
		}
		return h.serve(ctx, x, a, tx)
	})
	refusal := permanent(a.worked)
	if a.err == nil || refusal == nil {
		return a
	}
	text := h.text(failureAnswer(refusal, x.problems))
	kept, err := h.host.Apply(ctx, c, func(context.Context, Tx, []byte) ([]byte, error) { return text, nil })
	switch {
	case err != nil || kept.Err != 0 || kept.Replayed: // another's answer, or none
		a.own, a.answer, a.err, a.worked = nil, kept, err, nil
	case a.own == nil: // ours, which the handler has not written
		kept.Result = text
		a.answer, a.err, a.kept = kept, nil, true
	default:
		a.answer, a.err = kept, nil
	}
	return a
}

// untilWork returns a context that ends with the client until detach is called, which returns why if it has ended.
// Where the route says so, it always ends with the client.
func untilWork(x *exchange) (ctx context.Context, detach func() error, end func()) {
	client := x.r.Context()
	if x.route.EndWithClient {
		return client, func() error { return nil }, func() {}
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(client))
	stop := context.AfterFunc(client, func() { cancel(context.Cause(client)) })
	detached := false
	detach = func() error {
		if !detached && !stop() {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		detached = true
		return nil
	}
	return ctx, detach, func() { stop(); cancel(nil) }
}

// serve calls the handler in one transaction, and returns what is kept.
func (h *sessionHandler[Tx]) serve(ctx context.Context, x *exchange, a *applied, tx Tx) ([]byte, error) {
	if x.route.Deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, x.route.Deadline)
		defer cancel()
	}
	var answer Answer
	answer, a.worked = serveTx(ctx, x, &a.verdict, tx, h.withoutSecret, func(*recorder) func([][]byte) (*pieces, error) { return nil })
	if a.worked != nil {
		return nil, a.worked
	}
	return h.text(answer), nil
}

// withoutSecret calls the handler with a request that has no secret, which somebody would log.
func (h *sessionHandler[Tx]) withoutSecret(w http.ResponseWriter, r *http.Request, tx Tx) error {
	r.Header = maps.Clone(r.Header)
	delete(r.Header, wire.SessionSecret)
	return h.handle(w, r, tx)
}

// text returns what is kept of an answer.
func (h *sessionHandler[Tx]) text(a Answer) []byte {
	a.normalize()
	if b := a.encode(); len(b) <= h.limit {
		return b
	}
	return a.summary()
}

// exposed are the headers of answers that scripts of other origins may read.
var exposed = strings.Join([]string{wire.SessionRequest, wire.SessionOutcome, wire.SessionNext, "Retry-After"}, ", ")

// putSessionHeaders sets the response headers that name the number and its outcome.
func (x *exchange) putSessionHeaders() {
	if x.number == "" {
		return
	}
	h := x.w.Header()
	h.Set(wire.SessionRequest, x.number)
	if h.Del(wire.SessionOutcome); x.known != "" {
		h.Set(wire.SessionOutcome, x.known)
	}
	if name := "Access-Control-Expose-Headers"; len(x.r.Header["Origin"]) > 0 && !slices.Contains(h[name], exposed) {
		h.Add(name, exposed)
	}
}

// answer sends what a command came to.
func (h *sessionHandler[Tx]) answer(x *exchange, a *applied) {
	x.served.Outcome, x.known = a.outcome(), a.sessionOutcome()
	x.putSessionHeaders()
	switch {
	case a.err == nil && a.answer.Err != 0:
		x.rejectSession(&a.answer)
	case a.err == nil && (a.answer.Replayed || a.kept):
		x.replayKept(&a.answer)
	case a.err == nil:
		x.sendOwn(&a.verdict)
	case a.worked == nil:
		if !errors.Is(a.err, context.Cause(x.r.Context())) { // the client has gone
			x.log.ErrorContext(x.r.Context(), "httponce: the host of sessions failed", "route", x.served.Route, "error", a.err)
		}
		x.answerHostError(a.err)
	case a.own != nil:
		if !onlyStatus(a.worked) {
			x.log.ErrorContext(x.r.Context(), "httponce: not done", "route", x.served.Route, "error", a.worked)
		}
		x.sendOwn(&a.verdict)
	default:
		x.log.ErrorContext(x.r.Context(), "httponce: not done", "route", x.served.Route, "error", a.worked)
		x.problem(wire.NotDone, time.Second)
	}
}

// sessionOutcome returns the outcome that the client may see for its number: that the answer is kept, or that this
// attempt had no effect. Otherwise the request may have been executed, or be executing now.
func (a *applied) sessionOutcome() string {
	switch {
	case a.err == nil && a.answer.Err == 0:
		return wire.OutcomeKept
	case a.err == nil && slices.Contains([]session.Refusal{session.ErrBadMark, session.ErrMismatch, session.ErrWindowFull, session.ErrGap}, a.answer.Err),
		a.err != nil && a.worked != nil:
		return wire.OutcomeNone
	case a.err == nil, errors.Is(a.err, everonce.ErrOutcomeUnknown):
	case errors.Is(a.err, everonce.ErrStore) && problemOfStore(a.err) == wire.Unavailable,
		errors.Is(a.err, everonce.ErrTxTooLong), errors.Is(a.err, context.Canceled), errors.Is(a.err, context.DeadlineExceeded):
		return wire.OutcomeNone
	}
	return ""
}

// outcome is for metrics. Without one the request was refused.
func (a *applied) outcome() everonce.Outcome {
	switch {
	case a.err == nil && a.answer.Err == session.ErrInProgress:
		return everonce.InProgress
	case a.err == nil && a.answer.Err == session.ErrMismatch:
		return everonce.Mismatch
	case a.err == nil && a.answer.Err != 0:
		return 0
	case a.err == nil && a.answer.Replayed:
		return everonce.Replayed
	case a.err == nil && (a.kept || a.ending == Saved && a.worked != nil):
		return everonce.Rejected
	case a.err == nil:
		return everonce.Executed
	case a.worked != nil:
		return everonce.Failed
	case errors.Is(a.err, everonce.ErrOutcomeUnknown):
		return everonce.Unknown
	case errors.Is(a.err, everonce.ErrStore):
		return everonce.StoreFailed
	}
	return everonce.Failed
}

// sendOwn sends what the handler wrote.
func (x *exchange) sendOwn(v *verdict) {
	x.served.Status, x.served.Problem = v.own.status, v.own.upstream
	if v.own.marked() {
		wire.MarkUnknown(x.w) // inside another protected handler, whatever that one saves
	}
	v.own.send()
}

// replayKept sends an answer that the host has kept.
func (x *exchange) replayKept(a *session.Reply) {
	var kept Answer
	if a.Elided || kept.decode(a.Result) != nil {
		x.log.ErrorContext(x.r.Context(), "httponce: what the host kept of a request is no answer (it was executed by another handler)", "route", x.served.Route)
		x.known = ""
		x.putSessionHeaders()
		x.problem(wire.Unreadable, x.retryAfter)
		return
	}
	mark := markReplayed
	if !a.Replayed {
		mark = ""
	}
	x.replay(kept, mark)
}

// answerHostError answers where the host has no answer.
func (x *exchange) answerHostError(err error) {
	switch {
	case errors.Is(err, everonce.ErrOutcomeUnknown):
		x.problem(wire.CommitLost, time.Second)
	case errors.Is(err, everonce.ErrStore):
		x.answerStoreError(err)
	case errors.Is(err, everonce.ErrTxTooLong), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		x.problem(wire.NotDone, time.Second)
	default:
		x.problem(wire.Internal, 0)
	}
}

// rejectSession answers a refusal of a session.
func (x *exchange) rejectSession(a *session.Reply) {
	p, retryAfter := problemOfRefusal(a, x.retryAfter)
	if a.Err == session.ErrGap {
		x.w.Header().Set(wire.SessionNext, wire.FormatInteger(a.Next))
	}
	x.problem(p, retryAfter)
}

// problemOfRefusal returns the problem of a refusal, and when to come again if that may help. later is when there may
// be room for another session.
func problemOfRefusal(a *session.Reply, later time.Duration) (p wire.Problem, retryAfter time.Duration) {
	switch a.Err {
	case session.ErrSessionExpired:
		return wire.SessionExpired, 0
	case session.ErrSessionUnknown:
		return wire.SessionUnknown, 0
	case session.ErrFenced:
		return wire.SessionFenced, 0
	case session.ErrBadMark:
		return wire.InvalidMark, 0
	case session.ErrStale:
		return wire.RequestStale, 0
	case session.ErrMismatch:
		return wire.NumberReused, 0
	case session.ErrInProgress:
		return wire.SessionBusy, time.Second
	case session.ErrWindowFull:
		return wire.WindowFull, time.Second
	case session.ErrGap:
		p = wire.NumberGap
		p.Detail = "Nothing was done. The session expects the number " + wire.FormatInteger(a.Next) + "."
		return p, time.Second
	case session.ErrFull:
		return wire.SessionsFull, later
	case session.ErrQuota:
		return wire.SessionQuota, later
	}
	p = wire.InvalidSession
	p.Detail = "The host of sessions does not take it."
	return p, 0
}
