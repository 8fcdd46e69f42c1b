package sketches

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/everonce/everonce"
)

// answer is the saved result of a request: what was sent, byte for byte.
type answer struct {
	Status int         `json:"status"`
	Header http.Header `json:"header"`
	Body   []byte      `json:"body,omitempty"`
}

// head is what outlives the answer: enough to say what it was when the body is gone.
func (a answer) head() []byte {
	b, err := json.Marshal(answer{Status: a.Status, Header: a.Header})
	if err != nil { // a status and strings
		return nil
	}
	return b
}

// answerCodec writes the head as a line of JSON and the body as it is.
type answerCodec struct{}

// Name is what the record remembers.
func (answerCodec) Name() string { return "http/1" }

func (answerCodec) Marshal(v any) ([]byte, error) {
	a, ok := v.(answer)
	if !ok {
		return nil, fmt.Errorf("http: %T is no answer", v)
	}
	return append(append(a.head(), '\n'), a.Body...), nil
}

func (answerCodec) Unmarshal(data []byte, v any) error {
	a, ok := v.(*answer)
	if !ok {
		return fmt.Errorf("http: %T is no answer", v)
	}
	head, body, found := bytes.Cut(data, []byte{'\n'})
	if !found {
		return errors.New("http: an answer without a head")
	}
	if err := json.Unmarshal(head, a); err != nil {
		return err
	}
	a.Body = bytes.Clone(body)
	return nil
}

// recorder is the ResponseWriter that a handler sees: nothing is sent before the record is durable, so
// that an attempt that lost its lease sends nothing at all.
type recorder struct {
	answer
	body bytes.Buffer
}

func newRecorder() *recorder { return &recorder{answer: answer{Header: http.Header{}}} }

func (r *recorder) Header() http.Header { return r.answer.Header }

func (r *recorder) WriteHeader(status int) {
	if r.Status == 0 && status >= http.StatusOK {
		r.Status = status
	}
}

func (r *recorder) Write(p []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	return r.body.Write(p)
}

func (r *recorder) finish() answer {
	r.WriteHeader(http.StatusOK)
	r.Body = r.body.Bytes()
	return r.answer
}

// statusError is the error of an attempt whose handler answered, with an answer that is not to be kept.
type statusError int

func (e statusError) Error() string { return "handler answered " + strconv.Itoa(int(e)) }

// HTTP names the operation of a request.
type HTTP struct {
	// Principal tells who asks; it becomes part of the scope.
	Principal func(*http.Request) string
	MaxBody   int64
}

func (h HTTP) key(r *http.Request) everonce.Key {
	return everonce.Key{
		Scope: everonce.ScopeOf(h.Principal(r), r.Method, r.URL.Path),
		ID:    r.Header.Get("Idempotency-Key"),
	}
}

// buffered reads the body, which is part of the fingerprint, and gives the request a copy of it. Its
// context no longer ends with the connection: the attempt goes on when the client has gone.
func (h HTTP) buffered(w http.ResponseWriter, r *http.Request) (*http.Request, everonce.Fingerprint, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.MaxBody))
	if err != nil {
		return nil, everonce.Fingerprint{}, err
	}
	c := r.Clone(context.WithoutCancel(r.Context()))
	c.Body = io.NopCloser(bytes.NewReader(body))
	return c, everonce.FingerprintOf(r.Method, r.URL.RequestURI(), r.Header.Get("Content-Type"), body), nil
}

// Guarded is the middleware for handlers whose effect is elsewhere. The request may be answered before
// the work has returned: the attempt runs in a goroutine of its own, and Do returns there only when it
// has ended.
func (h HTTP) Guarded(recv *everonce.Receiver, next http.Handler, answerWithin time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req, sum, err := h.buffered(w, r)
		if err != nil {
			http.Error(w, "request body", http.StatusRequestEntityTooLarge)
			return
		}
		key := h.key(r)
		type done struct {
			res everonce.Result[answer]
			own answer // what this handler wrote, also where it is not kept
			err error
		}
		ended := make(chan done, 1)
		go func() {
			var d done
			d.res, d.err = everonce.Do(req.Context(), recv, key, func(ctx context.Context, a *everonce.Attempt) (answer, error) {
				rec := newRecorder()
				next.ServeHTTP(rec, req.WithContext(ctx))
				d.own = rec.finish()
				return d.own, keep(d.own.Status)
			}, sum, everonce.WithSummary(answer.head), everonce.WithCodec(answerCodec{}))
			ended <- d
		}()
		select {
		case d := <-ended:
			respond(w, d.res, d.own, d.err)
		case <-time.After(answerWithin):
			w.Header().Set("Retry-After", "1")
			http.Error(w, "still running: ask again with the same key", http.StatusServiceUnavailable)
		}
	})
}

// keep tells which answers end the operation: a server's error leaves the outcome unknown, and an
// answer that says "later" proves that nothing was done.
func keep(status int) error {
	switch {
	case status == http.StatusTooManyRequests:
		return everonce.NotDone(statusError(status))
	case status >= http.StatusInternalServerError:
		return statusError(status)
	}
	return nil
}

// ExactlyOnce is the handler whose effect is in the same database as the record. An answer from 400 on
// takes the transaction back, and is saved all the same.
func ExactlyOnce[Tx any](h HTTP, recv *everonce.TxReceiver[Tx], next func(ctx context.Context, tx Tx, w http.ResponseWriter, r *http.Request)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req, sum, err := h.buffered(w, r)
		if err != nil {
			http.Error(w, "request body", http.StatusRequestEntityTooLarge)
			return
		}
		var own answer // the work may run several times: the last one counts
		res, err := everonce.Transact(r.Context(), recv, h.key(r), func(ctx context.Context, tx Tx) (answer, error) {
			rec := newRecorder()
			next(ctx, tx, rec, req.WithContext(ctx))
			own = rec.finish()
			switch err := keep(own.Status); {
			case err != nil:
				return own, err
			case own.Status >= http.StatusBadRequest:
				detail, err := json.Marshal(own)
				if err != nil {
					return own, err
				}
				return own, everonce.Permanent("http_"+strconv.Itoa(own.Status), nil, detail)
			}
			return own, nil
		}, sum, everonce.WithSummary(answer.head), everonce.WithCodec(answerCodec{}))
		respond(w, res, own, err)
	})
}

// Status answers a client that polls: it never claims, so it never becomes the attempt.
func (h HTTP) Status(recv everonce.AnyReceiver) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := everonce.Key{Scope: everonce.ScopeOf(h.Principal(r), http.MethodPost, "/payments"), ID: r.PathValue("key")}
		res, err := everonce.Lookup[answer](r.Context(), recv, key, everonce.WithCodec(answerCodec{}))
		if errors.Is(err, everonce.ErrNotFound) {
			http.NotFound(w, r)
			return
		}
		respond(w, res, answer{}, err)
	})
}

// respond maps every outcome to an answer.
func respond(w http.ResponseWriter, res everonce.Result[answer], own answer, err error) {
	var e *everonce.Error
	if errors.As(err, &e) && e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
	}
	switch res.Outcome {
	case everonce.Executed:
		send(w, res.Value)
	case everonce.NotRecorded: // it happened: the client may know, the next delivery is settled by the policy
		send(w, res.Value)
	case everonce.Replayed:
		w.Header().Set("Idempotent-Replayed", "true")
		send(w, res.Value)
	case everonce.Rejected:
		var p *everonce.PermanentError
		var saved answer
		if errors.As(err, &p) && json.Unmarshal(p.Detail, &saved) == nil {
			if own.Status == 0 {
				w.Header().Set("Idempotent-Replayed", "true")
			}
			send(w, saved)
			return
		}
		http.Error(w, "refused", http.StatusUnprocessableEntity)
	case everonce.Elided, everonce.Expired: // done: status and headers are left, the body is not
		var head answer
		if e != nil && json.Unmarshal(e.Summary, &head) == nil && head.Status != 0 {
			w.Header().Set("Idempotent-Replayed", "true")
			head.Header.Del("Content-Length")
			send(w, head)
			return
		}
		http.Error(w, "done, the answer is no longer kept", http.StatusGone)
	case everonce.Failed: // the handler's own answer, once
		if own.Status != 0 {
			send(w, own)
			return
		}
		http.Error(w, "not done: send it again", http.StatusServiceUnavailable)
	case everonce.InProgress:
		http.Error(w, "A request is outstanding for this Idempotency-Key", http.StatusConflict)
	case everonce.Mismatch:
		http.Error(w, "Idempotency-Key is already used", http.StatusUnprocessableEntity)
	case everonce.Unknown:
		if own.Status != 0 {
			send(w, own)
			return
		}
		http.Error(w, "the outcome is unknown", http.StatusConflict)
	case everonce.Invalid:
		http.Error(w, err.Error(), http.StatusBadRequest)
	default: // fail closed
		http.Error(w, "try again with the same key", http.StatusServiceUnavailable)
	}
}

func send(w http.ResponseWriter, a answer) {
	for name, values := range a.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body) //nolint:errcheck // the client has gone: its retry is a replay
}
