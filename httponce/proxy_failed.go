package httponce

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"time"
)

// What a proxy answers itself.
var (
	problemUnreachable = problem{"upstream-unreachable", http.StatusBadGateway, "The service cannot be reached", "Nothing was sent to it: send the same request again."}
	problemLost        = problem{"upstream-lost", http.StatusBadGateway, "The service gave no answer", "Whether the operation was done is not known."}
	problemLoop        = problem{"upstream-loop", http.StatusLoopDetected, "The service leads back to this proxy", "The request came back to where it had been, and was not sent on again."}
	problemTimeout     = problem{"upstream-timeout", http.StatusGatewayTimeout, "The service gave no answer in time", "Whether the operation was done is not known."}
)

// upstreamFailure is why an upstream's answer is none.
type upstreamFailure uint8

const (
	upstreamAnswered upstreamFailure = iota // or nobody has asked it
	upstreamUnreachable
	upstreamLost
	upstreamTimeout
	upstreamLoop
)

// problem returns what a client is told.
func (f upstreamFailure) problem() problem {
	switch f {
	case upstreamUnreachable:
		return problemUnreachable
	case upstreamTimeout:
		return problemTimeout
	case upstreamLoop:
		return problemLoop
	}
	return problemLost
}

// unsent reports whether the upstream was sent nothing.
func (f upstreamFailure) unsent() bool { return f == upstreamUnreachable || f == upstreamLoop }

// failed answers a request that the upstream did not answer.
func (p *proxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	p.tell(w, r, passageOf(r), err)
}

// tell answers, and says what the failure means for the key.
func (p *proxy) tell(w http.ResponseWriter, r *http.Request, x *passage, err error) {
	if client, ok := x.asClientError(err); ok {
		client.answer(w, r)
		return
	}
	failure, retryAfter := upstreamLost, time.Duration(0)
	var unsent *notSentError
	switch {
	case errors.Is(err, errLoop):
		failure = upstreamLoop
	case errors.As(err, &unsent), !x.asked:
		failure, retryAfter = upstreamUnreachable, time.Second
	case errors.Is(r.Context().Err(), context.DeadlineExceeded), isTimeout(err):
		failure = upstreamTimeout
	}
	keyHash, told := markUpstream(w, failure)
	if x.attempt != nil && !told {
		p.cut(r, err)
	}
	text := "httponce: the upstream gave no answer"
	if failure == upstreamLoop { // it has not been asked
		text = "httponce: the upstream leads back to this proxy"
	}
	what, attrs := failure.problem(), []any{"method", r.Method, "path", r.URL.Path}
	if keyHash != "" {
		attrs = append(attrs, "key", keyHash)
	}
	p.opts.Log.WarnContext(r.Context(), text, append(attrs, "problem", what.name, "error", unquoted(err.Error()))...)
	p.problems.refuse(w, what, retryAfter)
}

// cut ends the connection of an attempt whose middleware cannot be told of a failure: a panic is unknown to it, whatever its Save
// says of a status.
func (p *proxy) cut(r *http.Request, err error) {
	p.opts.Log.ErrorContext(r.Context(), "httponce: the upstream gave no answer, and the middleware cannot be told, for a ResponseWriter in between has no Unwrap: the connection is cut, and the outcome is unknown",
		"method", r.Method, "path", r.URL.Path, "error", unquoted(err.Error()))
	panic(http.ErrAbortHandler)
}

// quotation is what %q writes.
var quotation = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// unquoted returns the text of an error without what it quotes. net/http quotes what it cannot read: a line of the answer, which may be left
// over from somebody else's, or a header of the request.
func unquoted(text string) string { return quotation.ReplaceAllString(text, `"…"`) }

// unquoting is what [httputil.ReverseProxy] writes its log to.
type unquoting struct{ log *slog.Logger }

// Write writes one entry.
func (u unquoting) Write(p []byte) (int, error) {
	u.log.Debug(unquoted(strings.TrimRight(string(p), "\n")))
	return len(p), nil
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}
