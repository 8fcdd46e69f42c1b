package wire

import (
	"net/http"
	"strings"
	"time"
)

// Form is how problems are written.
type Form struct {
	// Base is the URI that a problem's name follows in its type.
	Base string
	// Stripe adds the member error in Stripe's form, and the headers of [SetRetry].
	Stripe bool
}

// StripeError is the member error of a problem in the form of Stripe's API.
type StripeError struct {
	Type    string `json:"type"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// stripeCodes are Stripe's own codes; for any other problem its name is the code.
var stripeCodes = map[string]string{InProgress.Name: "idempotency_key_in_use"}

// stripeTypes are Stripe's types where the status does not decide.
var stripeTypes = map[string]string{
	MissingKey.Name: "idempotency_error", InvalidKey.Name: "idempotency_error", KeyReused.Name: "idempotency_error",
	InProgress.Name: "idempotency_error", Unknown.Name: "idempotency_error",
}

// stripe returns p in Stripe's form. code is the application's own, or empty.
func (p Problem) stripe(code string) *StripeError {
	e := StripeError{Type: stripeTypes[p.Name], Code: code, Message: p.Title + "."}
	if e.Type == "" {
		e.Type = "invalid_request_error"
		if p.Status >= http.StatusInternalServerError {
			e.Type = "api_error"
		}
	}
	if e.Code == "" {
		e.Code = stripeCodes[p.Name]
	}
	if e.Code == "" {
		e.Code = strings.ReplaceAll(p.Name, "-", "_")
	}
	if p.Detail != "" {
		e.Message += " " + p.Detail
	}
	return &e
}

// The headers by which SDKs decide about a retry: Stripe's own SDKs, and those that Stainless generates.
const (
	StripeShouldRetry = "Stripe-Should-Retry"
	ShouldRetry       = "X-Should-Retry"
)

// SetRetry tells an SDK whether its retry helps. It keeps a header that a handler has set.
func SetRetry(h http.Header, helps bool) {
	value := "false"
	if helps {
		value = "true"
	}
	for _, name := range [...]string{StripeShouldRetry, ShouldRetry} {
		if len(h[name]) == 0 {
			h[name] = []string{value}
		}
	}
}

// undecided are the problems after which a retry may help, but which have no Retry-After: the SDK decides. After Lost
// and Timeout the policy for the unknown matters, which only the middleware knows.
var undecided = map[string]bool{Lost.Name: true, Timeout.Name: true, BodyTooSlow.Name: true, BodyBroken.Name: true}

// setRetry says whether a retry helps after p.
func (p Problem) setRetry(h http.Header, retryAfter time.Duration) {
	if retryAfter > 0 || !undecided[p.Name] {
		SetRetry(h, retryAfter > 0)
	}
}
