package client

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/everonce/everonce/httponce/internal/wire"
)

const (
	// drainBytes and drainTime bound what is read of a dropped answer, so that its connection can be reused.
	drainBytes = 64 << 10
	drainTime  = time.Second
)

// answerBody is the body of an answer: what was read of it, and the rest.
type answerBody struct {
	head  *bytes.Reader
	fault error         // after head; nil while there is a rest
	rest  io.ReadCloser // after head, if fault is nil
	done  func()        // called when rest has ended or was closed
}

func (b *answerBody) Read(p []byte) (int, error) {
	if b.head.Len() > 0 {
		return b.head.Read(p)
	}
	if b.fault != nil {
		return 0, b.fault
	}
	n, err := b.rest.Read(p)
	if err != nil {
		b.done()
	}
	return n, err
}

func (b *answerBody) Close() error {
	if b.rest == nil {
		return nil
	}
	defer b.done()
	return b.rest.Close()
}

// upgraded is the body of a 101: both directions of a connection.
type upgraded struct {
	io.ReadWriteCloser
	done func()
}

func (u *upgraded) Close() error {
	defer u.done()
	return u.ReadWriteCloser.Close()
}

// peek reads up to n bytes of the answer's body; the next reader gets them again. whole means that there was no more.
// An err is returned to the next reader too.
func (a *attempt) peek(n int64) (text []byte, whole bool, err error) {
	body := a.resp.Body
	if body == nil || body == http.NoBody {
		return nil, true, nil
	}
	var buf bytes.Buffer
	if l := a.resp.ContentLength; l > 0 {
		buf.Grow(int(min(l, n, defaultBuffer) + bytes.MinRead))
	}
	_, err = buf.ReadFrom(io.LimitReader(body, n+1))
	err = a.contextCause(err)
	text = buf.Bytes()
	read := &answerBody{head: bytes.NewReader(text), fault: err, rest: body, done: a.release}
	whole = err == nil && int64(len(text)) <= n
	if whole {
		read.fault = io.EOF
	}
	if read.fault != nil {
		_ = body.Close() //nolint:errcheck // it has ended
		read.rest = nil
	}
	a.resp.Body = read
	return text[:min(int64(len(text)), n)], whole, err
}

// drop reads the rest of an answer that is not returned, within bounds, and closes it. spare is what MaxElapsed leaves
// for that and the next attempt.
func (a *attempt) drop(spare time.Duration) {
	if a.resp != nil && a.resp.Body != nil {
		a.timer.Reset(min(drainTime, spare/2))
		_, _ = io.CopyN(io.Discard, a.resp.Body, drainBytes) //nolint:errcheck // the result is not needed
		_ = a.resp.Body.Close()                              //nolint:errcheck // nor that
	}
	a.release()
}

// buffer reads the whole answer, unless it is a stream or too large. The error says how it was cut off.
func (a *attempt) buffer(limit int64) error {
	if limit < 0 || a.resp.StatusCode == http.StatusSwitchingProtocols || a.resp.ContentLength > limit || isStream(a.resp.Header) {
		return nil
	}
	_, _, err := a.peek(limit)
	return err
}

// isStream reports whether the answer's type says that it is read as it arrives.
func isStream(h http.Header) bool {
	media, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		return false
	}
	switch media {
	case "text/event-stream", "multipart/x-mixed-replace", "application/x-ndjson", "application/ndjson", "application/jsonl",
		"application/json-seq", "application/stream+json", "application/grpc":
		return true
	}
	return strings.HasPrefix(media, "application/grpc+")
}

// passes reports whether a 409 is temporary: by a Retry-After, or because the problem's type or title says that another
// attempt is running. The error says how the answer was cut off.
func (a *attempt) passes() (bool, error) {
	switch {
	case a.resp.Header.Get("Retry-After") != "":
		return true, nil
	case !wire.IsProblem(a.resp.Header):
		return false, nil
	}
	text, whole, err := a.peek(wire.MaxProblem)
	if err != nil || !whole {
		return false, err
	}
	d, err := wire.ReadProblem(a.resp.Header, text)
	return err == nil && d.Says(wire.InProgress), nil
}

var errNoAnswer = errors.New("client: the base returned neither an answer nor an error")
