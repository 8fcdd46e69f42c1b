package httponce

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"math"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// defaultProblemBase is where each type of problem has its page.
const defaultProblemBase = "https://github.com/everonce/everonce/blob/main/docs/reference/problems/"

// problem is a refusal of ours, as RFC 9457 writes it.
type problem struct {
	name   string // its type is the base and this
	status int
	title  string
	detail string
}

// The problems. Titles that the draft gives are the draft's. Each has a page under docs/reference/problems.
var (
	problemMissingKey   = problem{"missing-key", http.StatusBadRequest, "Idempotency-Key is missing", "This operation needs a key: send it again with one."}
	problemInvalidKey   = problem{"invalid-key", http.StatusBadRequest, "Idempotency-Key is invalid", ""}
	problemKeyReused    = problem{"key-reused", http.StatusUnprocessableEntity, "Idempotency-Key is already used", "The key was used with another request. Use a new key for a new operation."}
	problemInProgress   = problem{"in-progress", http.StatusConflict, "A request is outstanding for this Idempotency-Key", "Send the same request again later."}
	problemStillRunning = problem{"still-running", http.StatusServiceUnavailable, "The operation is still running", "Send the same request again later for its answer."}
	problemUnknown      = problem{"outcome-unknown", http.StatusConflict, "The outcome of this operation is unknown", "An earlier attempt ended, and nobody knows whether it took effect. It is not run again before that is settled: ask the service."}
	problemRefused      = problem{"refused", http.StatusUnprocessableEntity, "The operation was refused", ""}
	problemPrincipal    = problem{"no-principal", http.StatusForbidden, "The sender is not known", "A key is heeded only for a sender that is known."}
	problemBodyTooLarge = problem{"body-too-large", http.StatusRequestEntityTooLarge, "The request body is too large", ""}
	problemBodyTooSlow  = problem{"body-too-slow", http.StatusRequestTimeout, "The request body came too slowly", "Nothing was done: send it again."}
	problemBodyBroken   = problem{"body-broken", http.StatusBadRequest, "The request body could not be read", "Nothing was done: send it again."}
	problemUnavailable  = problem{"store-unavailable", http.StatusServiceUnavailable, "The record of operations is not available", "Nothing was done now: send the same request again later."}
	problemBusy         = problem{"busy", http.StatusServiceUnavailable, "Too many large requests are being worked on", "Nothing was done now: send the same request again later."}
	problemUnreadable   = problem{"record-unreadable", http.StatusServiceUnavailable, "The record of this operation cannot be read", "The operation has a record that this server cannot read. It is not run again: send the same request again later, and do not use a new key."}
	problemNotDone      = problem{"not-done", http.StatusServiceUnavailable, "The operation was not done", "Nothing took hold: send the same request again."}
	problemCommitLost   = problem{"commit-lost", http.StatusServiceUnavailable, "It is not known yet whether the operation was done", "The database did not say whether it committed. Send the same request again: that finds out."}
	problemInternal     = problem{"internal", http.StatusInternalServerError, "The request could not be handled", ""}
)

// ofAMoment are the problems that are no answer for good: a repetition may get another one.
var ofAMoment = []problem{
	problemInProgress, problemStillRunning, problemUnknown, problemUnavailable, problemBusy, problemUnreadable, problemNotDone, problemCommitLost,
	problemUnreachable, problemLost, problemTimeout, problemLoop,
}

// document is the JSON of a problem.
type document struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	// Code is a failure's own, where the application has refused.
	Code string `json:"code,omitempty"`
}

// is reports whether a document is that problem, of ours: by its title and its type, wherever its page is.
func (d *document) is(p problem) bool { return d.hasTitle(p) && d.hasType(p) }

// says reports whether a document says as much as that problem, by its title, which may be the draft's, or by its type. Who knows nothing
// of keys may use one of them for something else.
func (d *document) says(p problem) bool { return d.hasTitle(p) || d.hasType(p) }

func (d *document) hasTitle(p problem) bool { return strings.EqualFold(d.Title, p.title) }

func (d *document) hasType(p problem) bool {
	return strings.HasSuffix(strings.TrimSuffix(d.Type, ".md"), "/"+p.name)
}

// readProblem reads the problem that somebody else's answer is, compressed by gzip or not. Another coding cannot be read.
func readProblem(h http.Header, text []byte) (d document, ok bool) {
	switch coding := h.Get("Content-Encoding"); {
	case coding == "", strings.EqualFold(coding, "identity"):
	case strings.EqualFold(coding, "gzip"), strings.EqualFold(coding, "x-gzip"): // the same (RFC 9110, 8.4.1.3)
		z, err := gzip.NewReader(bytes.NewReader(text))
		if err != nil {
			return d, false
		}
		if text, err = io.ReadAll(io.LimitReader(z, maxProblem)); err != nil {
			return d, false
		}
	default:
		return d, false
	}
	return d, json.Unmarshal(text, &d) == nil
}

// maxProblem is the longest problem of somebody else's that is read to find out what a 409 says.
const maxProblem = 64 << 10

// isProblem reports whether an answer's body is a problem, as its header says.
func isProblem(h http.Header) bool {
	media, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && media == "application/problem+json"
}

// answer returns the problem as a whole answer.
func (p problem) answer(base, code string) Answer {
	uri := base + p.name
	if base == defaultProblemBase {
		uri += ".md"
	}
	text, err := json.Marshal(document{Type: uri, Title: p.title, Status: p.status, Detail: p.detail, Code: code})
	if err != nil { // strings and a number
		text = nil
	}
	return Answer{Status: p.status, Body: text, Header: http.Header{
		"Content-Type":   {"application/problem+json"},
		"Content-Length": {strconv.Itoa(len(text))},
		"Link":           {"<" + uri + `>; rel="describedby"`},
		"Cache-Control":  {"no-store"},
	}}
}

// refuse answers with a problem. A retryAfter above zero is told in whole seconds, rounded up.
func (s *settings) refuse(w http.ResponseWriter, p problem, retryAfter time.Duration) {
	if slices.ContainsFunc(ofAMoment, func(of problem) bool { return of.name == p.name }) {
		markUnknown(w) // inside another protected handler, whatever that one saves
	}
	a := p.answer(s.problems, "")
	h := w.Header()
	for name, values := range a.Header {
		h[name] = values
	}
	if retryAfter > 0 {
		h.Set("Retry-After", wholeSeconds(retryAfter))
	}
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body) //nolint:errcheck // the client has gone
}

// wholeSeconds is how HTTP writes a pause (RFC 9110, 10.2.3): never 0, which would say "at once".
func wholeSeconds(d time.Duration) string {
	return strconv.FormatFloat(max(1, math.Ceil(d.Seconds())), 'f', 0, 64)
}
