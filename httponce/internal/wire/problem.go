package wire

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// DefaultProblemBase is the folder of the pages that describe the problems.
const DefaultProblemBase = "https://github.com/everonce/everonce/blob/main/docs/reference/problems/"

// CheckProblemBase refuses a base that no name can follow.
func CheckProblemBase(base string) error {
	if u, err := url.Parse(base); err != nil || u.Opaque != "" || !strings.Contains(base, "/") || strings.ContainsAny(base, "<>\" ") {
		return fmt.Errorf("ProblemBase: %q is not a URI that a name can follow", base)
	}
	return nil
}

// Problem is an answer of everonce's own: a problem document (RFC 9457).
type Problem struct {
	Name   string // follows the base in the problem's type
	Status int
	Title  string
	Detail string
}

// The problems. MissingKey, KeyReused and InProgress have the draft's titles. Each problem has a page in
// docs/reference/problems.
var (
	MissingKey   = Problem{"missing-key", http.StatusBadRequest, "Idempotency-Key is missing", "This operation needs a key: send it again with one."}
	InvalidKey   = Problem{"invalid-key", http.StatusBadRequest, "Idempotency-Key is invalid", ""}
	KeyReused    = Problem{"key-reused", http.StatusUnprocessableEntity, "Idempotency-Key is already used", "The key was used with another request. Use a new key for a new operation."}
	InProgress   = Problem{"in-progress", http.StatusConflict, "A request is outstanding for this Idempotency-Key", "Send the same request again later."}
	StillRunning = Problem{"still-running", http.StatusServiceUnavailable, "The operation is still running", "Send the same request again later for its answer."}
	Unknown      = Problem{"outcome-unknown", http.StatusConflict, "The outcome of this operation is unknown", "An earlier attempt ended, and it is unknown whether it took effect. It does not run again until that is settled: ask the service."}
	Refused      = Problem{"refused", http.StatusUnprocessableEntity, "The operation was refused", ""}
	NoPrincipal  = Problem{"no-principal", http.StatusForbidden, "The sender is not known", "A key counts only for a known sender."}
	BodyTooLarge = Problem{"body-too-large", http.StatusRequestEntityTooLarge, "The request body is too large", ""}
	BodyTooSlow  = Problem{"body-too-slow", http.StatusRequestTimeout, "The request body came too slowly", "Nothing was done: send the request again."}
	BodyBroken   = Problem{"body-broken", http.StatusBadRequest, "The request body could not be read", "Nothing was done: send the request again."}
	Unavailable  = Problem{"store-unavailable", http.StatusServiceUnavailable, "The record of operations is not available", "Nothing was done now: send the same request again later."}
	Busy         = Problem{"busy", http.StatusServiceUnavailable, "Too many large requests are being worked on", "Nothing was done now: send the same request again later."}
	Unreadable   = Problem{"record-unreadable", http.StatusServiceUnavailable, "The record of this operation cannot be read", "The operation has a record that this server cannot read. It is not run again: send the same request again later, and do not use a new key."}
	NotDone      = Problem{"not-done", http.StatusServiceUnavailable, "The operation was not done", "The operation had no effect: send the same request again."}
	CommitLost   = Problem{"commit-lost", http.StatusServiceUnavailable, "It is not known yet whether the operation was done", "The database did not say whether it committed. Send the same request again: that finds out."}
	Internal     = Problem{"internal", http.StatusInternalServerError, "The request could not be handled", ""}

	// The proxy's own.
	Unreachable = Problem{"upstream-unreachable", http.StatusBadGateway, "The service cannot be reached", "Nothing was sent to it: send the same request again."}
	Lost        = Problem{"upstream-lost", http.StatusBadGateway, "The service gave no answer", "Whether the operation was done is not known."}
	Loop        = Problem{"upstream-loop", http.StatusLoopDetected, "The service leads back to this proxy", "The request came back to where it had been, and was not sent on again."}
	Timeout     = Problem{"upstream-timeout", http.StatusGatewayTimeout, "The service gave no answer in time", "Whether the operation was done is not known."}
)

// temporary are the problems that are not a final answer: a repetition may get another one.
var temporary = []Problem{
	InProgress, StillRunning, Unknown, Unavailable, Busy, Unreadable, NotDone, CommitLost, Unreachable, Lost, Timeout, Loop,
	SessionBusy, NumberGap, SessionsFull,
}

// Document is what is read of a problem. It has only members that RFC 9457 defines: a server may use any other name for
// anything.
type Document struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
}

// document is the JSON form of a problem of ours.
type document struct {
	Document
	// Code is the code of the application's own failure.
	Code string `json:"code,omitempty"`
	// Error says the same to an SDK of Stripe's; see [Form].
	Error *StripeError `json:"error,omitempty"`
}

// Is reports whether d is everonce's problem p: by its title and by its type, wherever its page is.
func (d *Document) Is(p Problem) bool { return d.hasTitle(p) && d.hasType(p) }

// Says reports whether d means p, by its title or by its type: the draft gives titles only. A service that knows
// nothing of keys may use either for something else.
func (d *Document) Says(p Problem) bool { return d.hasTitle(p) || d.hasType(p) }

// Temporary reports whether d is a problem of everonce's that is not a final answer.
func (d *Document) Temporary() bool { return slices.ContainsFunc(temporary, d.Is) }

func (d *Document) hasTitle(p Problem) bool { return strings.EqualFold(d.Title, p.Title) }

func (d *Document) hasType(p Problem) bool {
	return strings.HasSuffix(strings.TrimSuffix(d.Type, ".md"), "/"+p.Name)
}

// MaxProblem is the longest problem, in bytes, that is read from another server.
const MaxProblem = 64 << 10

// IsProblem reports whether an answer's header says that its body is a problem.
func IsProblem(h http.Header) bool {
	media, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && media == "application/problem+json"
}

var errCoding = errors.New("unknown Content-Encoding")

// ReadProblem reads a problem that another server sent, plain or compressed by gzip.
func ReadProblem(h http.Header, text []byte) (d Document, err error) {
	switch coding := h.Get("Content-Encoding"); {
	case coding == "", strings.EqualFold(coding, "identity"):
	case strings.EqualFold(coding, "gzip"), strings.EqualFold(coding, "x-gzip"): // the same (RFC 9110, 8.4.1.3)
		z, err := gzip.NewReader(bytes.NewReader(text))
		if err != nil {
			return d, err
		}
		if text, err = io.ReadAll(io.LimitReader(z, MaxProblem)); err != nil {
			return d, err
		}
	default:
		return d, errCoding
	}
	if err = json.Unmarshal(text, &d); isMistyped(err) {
		err = nil
	}
	return d, err
}

// isMistyped reports whether all that is wrong is a member of another type. That counts as absent (RFC 9457, 3.1), and
// the others have been read.
func isMistyped(err error) bool {
	_, ok := errors.AsType[*json.UnmarshalTypeError](err)
	return ok
}

// Answer returns the header and the body that p is sent with. A retryAfter above zero becomes the Retry-After; code is
// the application's own, or empty.
func (p Problem) Answer(f Form, code string, retryAfter time.Duration) (http.Header, []byte) {
	uri := f.Base + p.Name
	if f.Base == DefaultProblemBase {
		uri += ".md"
	}
	d := document{Document: Document{Type: uri, Title: p.Title, Status: p.Status, Detail: p.Detail}, Code: code}
	if f.Stripe {
		d.Error = p.stripe(code)
	}
	text, err := json.Marshal(d)
	if err != nil { // strings and a number
		text = nil
	}
	h := http.Header{
		"Content-Type":   {"application/problem+json"},
		"Content-Length": {strconv.Itoa(len(text))},
		"Link":           {"<" + uri + `>; rel="describedby"`},
		"Cache-Control":  {"no-store"},
	}
	if retryAfter > 0 {
		h["Retry-After"] = []string{Seconds(retryAfter)}
	}
	if f.Stripe {
		p.setRetry(h, retryAfter)
	}
	return h, text
}

// Send answers with p. If p is temporary, a middleware around w records no final answer, whatever its Save says of the
// status. A retryAfter above zero becomes the Retry-After.
func (p Problem) Send(w http.ResponseWriter, f Form, retryAfter time.Duration) {
	if slices.ContainsFunc(temporary, func(of Problem) bool { return of.Name == p.Name }) {
		MarkUnknown(w)
	}
	own, text := p.Answer(f, "", retryAfter)
	h := w.Header()
	for name, values := range own {
		h[name] = values
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(text) //nolint:errcheck // the client has gone
}

// Seconds formats a Retry-After (RFC 9110, 10.2.3): whole seconds, rounded up, and never 0, which would mean "at once".
func Seconds(d time.Duration) string {
	return strconv.FormatFloat(max(1, math.Ceil(d.Seconds())), 'f', 0, 64)
}
