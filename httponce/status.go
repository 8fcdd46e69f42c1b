package httponce

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce/internal/wire"
)

// Status returns a handler that tells a client what became of one of its keys, without repeating the operation: for
// clients that poll, and for those that lost the body. Mount it for GET, with the key in the path:
//
//	mux.Handle("GET /payments/status/{key}", status)
//
// The key is the path's wildcard of that name, plain or quoted as in the header; if the pattern has none, it is the
// key's header. route names the operations by method and name of their route ("POST /payments"; see [Served.Route]).
// recv, principal and opts are the same as for the middleware, or HandleTx, that protects them; if the route has a
// Principal, pass that one. Of opts it uses KeyHeader, ProblemBase, RetryAfter, Log, and the Methods of the routes, but
// all must be valid. A route whose method takes no key is refused.
//
// The answer is a JSON document, described in docs/reference/http-status.md: done, with the answer that a repetition
// would get; in progress, with a Retry-After; unknown; not done; or, with status 404, not seen. Another principal's key
// is not seen, nor is a request in [HandleTx] before its commit. Nothing is written, and no fingerprint is compared.
// With an identity secret call [everonce.Receiver.Ready] at start-up; otherwise a store without a record is refused.
//
// The error wraps [everonce.ErrInvalidArgument].
func Status(recv everonce.AnyReceiver, principal Principal, route string, opts *Options) (http.Handler, error) {
	if missing(recv) || principal == nil {
		return nil, fmt.Errorf("%w: the receiver or the principal is nil", everonce.ErrInvalidArgument)
	}
	method, name, ok := strings.Cut(route, " ")
	name = strings.TrimLeft(name, " \t")
	if !ok || !wire.IsToken(method) || method != strings.ToUpper(method) || name == "" {
		return nil, fmt.Errorf("%w: the route %q is not a method and a name, like \"POST /payments\"", everonce.ErrInvalidArgument, route)
	}
	s, err := opts.settings()
	if err != nil {
		return nil, err
	}
	if !s.takesKey(method) {
		return nil, fmt.Errorf("%w: the route %q: %s takes no key by these options (pass the options of the middleware, with its Methods)",
			everonce.ErrInvalidArgument, route, method)
	}
	h := &statusHandler{settings: s, recv: recv, principal: principal, method: method, name: name}
	return readOnly(h.serve), nil
}

type statusHandler struct {
	*settings
	recv         everonce.AnyReceiver
	principal    Principal
	method, name string
}

// The states that Status tells.
const (
	stateDone       = "done"
	stateInProgress = "in_progress"
	stateUnknown    = "unknown"
	stateNotDone    = "not_done"
	stateNotSeen    = "not_seen"
)

// statusDocument is what Status answers.
type statusDocument struct {
	State  string        `json:"state"`
	Answer *statusAnswer `json:"answer,omitempty"`
}

// statusAnswer is what a repetition of the request would be answered.
type statusAnswer struct {
	Status     int         `json:"status"`
	Headers    http.Header `json:"headers"`
	Body       *string     `json:"body,omitempty"`        // where it is UTF-8
	BodyBase64 []byte      `json:"body_base64,omitempty"` // where it is not
	Trailers   http.Header `json:"trailers,omitempty"`
	// Missing says why there is no body: "elided", "expired".
	Missing string `json:"missing,omitempty"`
}

func (h *statusHandler) serve(w http.ResponseWriter, r *http.Request) {
	id, found, wrong := h.key(r)
	switch {
	case !found:
		wire.MissingKey.Send(w, h.problems, 0)
		return
	case wrong != "":
		p := wire.InvalidKey
		p.Detail = string(wrong) + "."
		p.Send(w, h.problems, 0)
		return
	}
	who, err := h.principal.name(r)
	if err != nil {
		h.log.InfoContext(r.Context(), "httponce: no principal", "route", h.name, "error", err)
		wire.NoPrincipal.Send(w, h.problems, 0)
		return
	}
	key := everonce.Key{Scope: scopeOf(who, h.method, h.name), ID: id}
	res, err := everonce.Lookup[Answer](r.Context(), h.recv, key, everonce.WithCodec(answerCodec{}))
	h.answer(w, r, key, res, err)
}

func (h *statusHandler) key(r *http.Request) (key string, found bool, wrong wire.KeyProblem) {
	value := r.PathValue("key")
	if value == "" {
		return wire.KeyOf(r.Header, h.header)
	}
	if strings.HasPrefix(value, `"`) {
		key, wrong = wire.ParseKey(value)
		return key, true, wrong
	}
	return value, true, wire.CheckKey(value)
}

// answer writes the known state of a key.
func (h *statusHandler) answer(w http.ResponseWriter, r *http.Request, key everonce.Key, res everonce.Result[Answer], err error) {
	e := errorOf(err)
	switch res.Outcome {
	case everonce.Replayed:
		h.done(w, r, key, res.Value, "") // what could be decoded has a status
	case everonce.Rejected:
		h.done(w, r, key, failureAnswer(err, h.problems), "")
	case everonce.Elided:
		h.done(w, r, key, restOf(e, h.problems), markElided)
	case everonce.Expired:
		h.done(w, r, key, restOf(e, h.problems), markExpired)
	case everonce.InProgress:
		w.Header().Set("Retry-After", wire.Seconds(e.RetryAfter))
		h.send(w, http.StatusOK, statusDocument{State: stateInProgress})
	case everonce.Unknown:
		h.send(w, http.StatusOK, statusDocument{State: stateUnknown})
	case everonce.Failed:
		switch {
		case errors.Is(err, everonce.ErrNotFound):
			h.send(w, http.StatusNotFound, statusDocument{State: stateNotSeen})
		case errors.Is(err, everonce.ErrReleased):
			h.send(w, http.StatusOK, statusDocument{State: stateNotDone})
		default:
			wire.Unavailable.Send(w, h.problems, h.retryAfter)
		}
	default:
		h.log.ErrorContext(r.Context(), "httponce: the status of a key cannot be read", "route", h.name, "key", e.KeyHash, "error", err)
		problemOfStore(err).Send(w, h.problems, h.retryAfter)
	}
}

// done tells the answer of an operation.
func (h *statusHandler) done(w http.ResponseWriter, r *http.Request, key everonce.Key, a Answer, missing string) {
	var body []byte
	if !a.Elided {
		var err error
		if body, err = a.fullBody(r.Context(), h.recv, key); err != nil {
			h.log.WarnContext(r.Context(), "httponce: a piece of a saved answer cannot be read: only status and headers are sent",
				"route", h.name, "key", h.recv.RecordID(key).Short(), "error", err)
			a.Elided = true
		}
	}
	doc := a.statusAnswer(body)
	doc.Missing = cmp.Or(missing, doc.Missing)
	h.send(w, http.StatusOK, statusDocument{State: stateDone, Answer: &doc})
}

// fullBody returns the body of an answer, from all records that it is in.
func (a *Answer) fullBody(ctx context.Context, recv everonce.AnyReceiver, key everonce.Key) ([]byte, error) {
	if a.saved == nil {
		return a.Body, nil
	}
	body := []byte(a.saved.body())
	if a.saved.pieces.total == 0 {
		return body, nil
	}
	rest, err := a.saved.pieces.fetch(ctx, recv, key)
	return bytes.Join(append([][]byte{body}, rest...), nil), err
}

// send answers with a document. It is one client's alone, and of this moment.
func (h *statusHandler) send(w http.ResponseWriter, status int, doc statusDocument) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(doc); err != nil { // strings, bytes and numbers
		wire.Internal.Send(w, h.problems, time.Second)
		return
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", strconv.Itoa(b.Len()))
	header.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) //nolint:errcheck // the client has gone
}
