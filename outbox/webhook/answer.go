package webhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/outbox"
)

const (
	maxAnswer     = 64 << 10 // bytes read of a response
	maxRetryAfter = 24 * time.Hour
)

// outcome returns what a response means to a relay.
func outcome(host string, resp *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) // lets the connection be reused
	code := resp.StatusCode
	said := fmt.Errorf("webhook: %s answered %d %s", host, code, http.StatusText(code))
	switch {
	case code >= 200 && code <= 299:
		return nil
	case code >= 300 && code <= 399:
		return fmt.Errorf("%w: the redirect is not followed (set the URL that it leads to)", said)
	case code == http.StatusConflict && err == nil && isInProgress(resp.Header, text),
		code == http.StatusRequestTimeout, code == http.StatusTooEarly, code == http.StatusTooManyRequests:
	case code == http.StatusGone:
		return everonce.Permanent("gone", said, nil)
	case code >= 400 && code <= 499:
		return everonce.Permanent("rejected", said, nil)
	}
	if after := retryAfter(resp.Header, time.Now()); after > 0 {
		return outbox.RetryAfter(said, after)
	}
	return said
}

// isInProgress reports whether a response is package httponce's problem "in-progress", or has the title that
// draft-ietf-httpapi-idempotency-key-header gives it.
func isInProgress(h http.Header, text []byte) bool {
	var problem struct{ Type, Title string }
	media, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err = errors.Join(err, json.Unmarshal(text, &problem)); err != nil || media != "application/problem+json" {
		return false
	}
	return strings.EqualFold(problem.Title, "A request is outstanding for this Idempotency-Key") ||
		strings.HasSuffix(strings.TrimSuffix(problem.Type, ".md"), "/in-progress")
}

// retryAfter returns the delay of a Retry-After header, or 0.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil || errors.Is(err, strconv.ErrRange) {
		return min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}
