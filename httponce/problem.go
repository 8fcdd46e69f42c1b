package httponce

import (
	"encoding/json"
	"math"
	"net/http"
	"strconv"
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

// The problems. Titles that the draft gives are the draft's.
var (
	problemMissingKey   = problem{"missing-key", http.StatusBadRequest, "Idempotency-Key is missing", "This operation needs a key: send it again with one."}
	problemInvalidKey   = problem{"invalid-key", http.StatusBadRequest, "Idempotency-Key is invalid", ""}
	problemKeyReused    = problem{"key-reused", http.StatusUnprocessableEntity, "Idempotency-Key is already used", "The key was used with another request. Use a new key for a new operation."}
	problemInProgress   = problem{"in-progress", http.StatusConflict, "A request is outstanding for this Idempotency-Key", "Send the same request again later."}
	problemStillRunning = problem{"still-running", http.StatusServiceUnavailable, "The operation is still running", "Send the same request again later for its answer."}
	problemUnknown      = problem{"outcome-unknown", http.StatusConflict, "The outcome of this operation is unknown", "An earlier attempt ended without an answer. It is not run again before its outcome was settled: ask the service."}
	problemPrincipal    = problem{"no-principal", http.StatusForbidden, "The sender is not known", "A key is heeded only for a sender that is known."}
	problemBodyTooLarge = problem{"body-too-large", http.StatusRequestEntityTooLarge, "The request body is too large", ""}
	problemBodyTooSlow  = problem{"body-too-slow", http.StatusRequestTimeout, "The request body came too slowly", "Nothing was done: send it again."}
	problemBodyBroken   = problem{"body-broken", http.StatusBadRequest, "The request body could not be read", "Nothing was done: send it again."}
	problemUnavailable  = problem{"store-unavailable", http.StatusServiceUnavailable, "The record of operations is not available", "Nothing was done: send the same request again later."}
	problemNotDone      = problem{"not-done", http.StatusServiceUnavailable, "The operation was not done", "Nothing took hold: send the same request again."}
	problemInternal     = problem{"internal", http.StatusInternalServerError, "The request could not be handled", ""}
)

// document is the JSON of a problem.
type document struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
}

// refuse answers with a problem. A retryAfter above zero is told in whole seconds, rounded up.
func (s *settings) refuse(w http.ResponseWriter, p problem, retryAfter time.Duration) {
	uri := s.problems + p.name
	if s.problems == defaultProblemBase {
		uri += ".md"
	}
	text, err := json.Marshal(document{Type: uri, Title: p.title, Status: p.status, Detail: p.detail})
	if err != nil { // four strings and a number
		text = nil
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Link", "<"+uri+`>; rel="describedby"`)
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	if retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(retryAfter.Seconds()))))
	}
	w.WriteHeader(p.status)
	_, _ = w.Write(text) //nolint:errcheck // the client has gone
}
