package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/everonce/everonce/httponce/internal/wire"
)

// handleError answers a request that the upstream did not answer.
func (p *handler) handleError(w http.ResponseWriter, r *http.Request, err error) {
	p.answerError(w, r, passageOf(r), err)
}

// answerError answers, and says what the failure means for the key.
func (p *handler) answerError(w http.ResponseWriter, r *http.Request, x *passage, err error) {
	if client, ok := x.asClientError(err); ok {
		client.answer(w, r)
		return
	}
	failure, retryAfter := wire.Lost, time.Duration(0)
	var unsent *notSentError
	switch {
	case errors.Is(err, errLoop):
		failure = wire.Loop
	case errors.As(err, &unsent), !x.asked:
		failure, retryAfter = wire.Unreachable, time.Second
	case errors.Is(r.Context().Err(), context.DeadlineExceeded), isTimeout(err):
		failure = wire.Timeout
	}
	attrs := []any{"method", r.Method, "path", r.URL.Path}
	if recorder, ok := wire.Unwrapped[wire.Recorder](w); ok {
		if keyHash := recorder.MarkUpstream(failure.Name); keyHash != "" {
			attrs = append(attrs, "key", keyHash)
		}
		if failure == wire.Unreachable || failure == wire.Loop {
			recorder.MarkNotDone()
		} // else temporary, which Send marks
	} else if x.attempt != nil {
		p.cut(r, err)
	}
	text := "proxy: the upstream gave no answer"
	if failure == wire.Loop { // it was not asked
		text = "proxy: the upstream leads back to this proxy"
	}
	p.opts.Log.WarnContext(r.Context(), text, append(attrs, "problem", failure.Name, "error", unquoted(err.Error()))...)
	failure.Send(w, p.opts.problems(), retryAfter)
}

// cut ends the connection of an attempt whose middleware cannot learn of the failure: to the middleware a panic is
// unknown, whatever its Save says of a status.
func (p *handler) cut(r *http.Request, err error) {
	p.opts.Log.ErrorContext(r.Context(), "proxy: the upstream gave no answer, and a ResponseWriter without Unwrap hides the middleware: the connection is closed, and the outcome is unknown",
		"method", r.Method, "path", r.URL.Path, "error", unquoted(err.Error()))
	panic(http.ErrAbortHandler)
}

// quotation is what %q writes.
var quotation = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// unquoted returns the text of an error without what it quotes. net/http quotes what it cannot read: a line of the
// answer, which may be left over from somebody else's, or a header of the request.
func unquoted(text string) string { return quotation.ReplaceAllString(text, `"…"`) }

// unquoting is what [httputil.ReverseProxy] writes its log to.
type unquoting struct{ log *slog.Logger }

func (u unquoting) Write(p []byte) (int, error) {
	u.log.Debug(unquoted(strings.TrimRight(string(p), "\n")))
	return len(p), nil
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}
