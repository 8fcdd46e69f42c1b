package wire

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/dunglas/httpsfv"
)

// The headers of sessions. All but the secret are structured fields (RFC 9651) of integers, and Ordered is a boolean.
const (
	SessionHeader  = "Idempotency-Session"         // its ID
	SessionSecret  = "Idempotency-Session-Secret"  //nolint:gosec // a name
	SessionRequest = "Idempotency-Session-Request" // the number of a request, and in answers that it counted
	SessionMark    = "Idempotency-Session-Mark"
	SessionEpoch   = "Idempotency-Session-Epoch"
	SessionOrdered = "Idempotency-Session-Ordered"
	// Of answers.
	SessionOutcome = "Idempotency-Session-Outcome" // the known outcome of the request after this attempt: see below
	SessionLease   = "Idempotency-Session-Lease"   // in seconds, an integer or a decimal
	SessionWindow  = "Idempotency-Session-Window"
	SessionNext    = "Idempotency-Session-Next"
)

// The outcomes, tokens of a structured field. Without one, an earlier attempt, or this one, may have been executed.
const (
	OutcomeKept = "kept" // the answer belongs to the number, and is kept
	OutcomeNone = "none" // this attempt had no effect, and will have none
)

// SessionHeaders are the headers of requests.
var SessionHeaders = []string{SessionHeader, SessionSecret, SessionRequest, SessionMark, SessionEpoch, SessionOrdered}

// The problems of sessions. Those that pass are 409 and 503, and 429.
var (
	MissingSession = Problem{"missing-session", http.StatusBadRequest, "The session's headers are missing", "This operation needs a session: register one, and number the request."}
	InvalidSession = Problem{"invalid-session", http.StatusBadRequest, "The session's headers are invalid", ""}
	SessionExpired = Problem{"session-expired", http.StatusGone, "The session has ended", "Nothing was done now. Whether this request was done before, if it was sent before, is not known: do not send it under another session."}
	SessionUnknown = Problem{"session-unknown", http.StatusNotFound, "There is no such session", "Nothing was done now. The session was never here, or is another sender's, or its secret is another."}
	SessionFenced  = Problem{"session-fenced", http.StatusForbidden, "A later run of the client has the session", "Nothing was done now. The session's epoch is higher than this request's."}
	InvalidMark    = Problem{"invalid-mark", http.StatusBadRequest, "The session's mark is invalid", "The mark must be below the request's number, and not far above what was asked for. Nothing was done."}
	RequestStale   = Problem{"request-stale", http.StatusGone, "The request's number is below the mark", "Nothing was done now, and never will be under this number. It may have been done before."}
	NumberReused   = Problem{"number-reused", http.StatusUnprocessableEntity, "The request's number is already used", "The number was used with another request. Use the next number for a new operation."}
	SessionBusy    = Problem{"session-busy", http.StatusConflict, "The session is busy", "This request, or another one of its session, is being executed. Nothing was done now: send the same request again later."}
	WindowFull     = Problem{"window-full", http.StatusTooManyRequests, "Too many answers are kept for the session", "Nothing was done: send the same request again with a higher mark."}
	NumberGap      = Problem{"number-gap", http.StatusConflict, "The session expects another number", ""}
	SessionsFull   = Problem{"sessions-full", http.StatusServiceUnavailable, "There is no room for another session", "No session was registered: try again later, with the same secret."}
	SessionQuota   = Problem{"session-quota", http.StatusTooManyRequests, "The sender has too many sessions", "No session was registered: end one, or try again later, with the same secret."}
)

// maxSessionInteger is the largest integer that a structured field has.
const maxSessionInteger = 999_999_999_999_999

// SessionInteger returns the integer in a header; found is false if the header is absent. problem says what is wrong
// with it.
func SessionInteger(h http.Header, name string) (n uint64, found bool, problem string) {
	item, found, problem := sessionItem(h, name)
	if !found || problem != "" {
		return 0, found, problem
	}
	i, ok := item.(int64)
	if !ok || i < 0 {
		return 0, true, "it is not an integer of 0 to 999999999999999 (RFC 9651)"
	}
	return uint64(i), true, ""
}

// SessionFlag returns the boolean in a header.
func SessionFlag(h http.Header, name string) (on bool, problem string) {
	item, found, problem := sessionItem(h, name)
	if !found || problem != "" {
		return false, problem
	}
	on, ok := item.(bool)
	if !ok {
		return false, "it is neither ?1 nor ?0 (RFC 9651)"
	}
	return on, ""
}

func sessionItem(h http.Header, name string) (value any, found bool, problem string) {
	values := h[name]
	switch {
	case len(values) == 0:
		return nil, false, ""
	case len(values) > 1:
		return nil, true, string(KeyRepeated)
	case len(values[0]) > MaxKeyLen:
		return nil, true, string(KeyTooLong)
	}
	item, err := httpsfv.UnmarshalItem(values)
	if err != nil {
		return nil, true, "it is not a structured field (RFC 9651)"
	}
	return item.Value, true, ""
}

// FormatInteger returns n as a field. A session's number is never larger than maxSessionInteger.
func FormatInteger(n uint64) string { return strconv.FormatUint(min(n, maxSessionInteger), 10) }

// The bounds of a secret, in bytes.
const (
	minSecret = 16
	maxSecret = 64
)

// Secret returns the session's secret in a header. It may be quoted.
func Secret(h http.Header) (secret []byte, found bool, problem string) {
	text, found, p := KeyOf(h, SessionSecret)
	if !found || p != "" {
		return nil, found, string(p)
	}
	secret, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(secret) < minSecret || len(secret) > maxSecret {
		return nil, true, "it is not 16 to 64 random bytes in base64url without padding (RFC 4648)"
	}
	return secret, true, ""
}

// FormatSecret returns a secret as a field.
func FormatSecret(secret []byte) string {
	return `"` + base64.RawURLEncoding.EncodeToString(secret) + `"`
}

// SessionNonce returns the nonce that a host gets for a sender's secret. It differs between senders, and cannot be sent
// in place of the secret.
func SessionNonce(principal string, secret []byte) (nonce [16]byte) {
	var stack [256]byte
	b := binary.AppendUvarint(append(stack[:0], "everonce/httponce/session\x00"...), uint64(len(principal)))
	b = append(append(b, principal...), secret...)
	sum := sha256.Sum256(b)
	copy(nonce[:], sum[:])
	return nonce
}

// FormatLease returns a lease in seconds, rounded down to milliseconds.
func FormatLease(d time.Duration) string {
	if d%time.Second == 0 {
		return format(int64(d / time.Second))
	}
	return format(math.Floor(d.Seconds()*1000) / 1000)
}

// Lease returns the lease in a header, or 0 if there is no valid one.
func Lease(h http.Header) time.Duration {
	value, _, _ := sessionItem(h, SessionLease)
	switch n := value.(type) {
	case int64:
		return seconds(float64(n))
	case float64:
		return seconds(n)
	}
	return 0
}

func seconds(n float64) time.Duration {
	if n <= 0 || n > math.MaxInt64/float64(time.Second)/2 {
		return 0
	}
	return time.Duration(n * float64(time.Second))
}

func format(value any) string {
	text, err := httpsfv.Marshal(httpsfv.NewItem(value))
	if err != nil { // its values are checked
		return ""
	}
	return text
}
