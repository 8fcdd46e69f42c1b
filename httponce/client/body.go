package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// repeatable returns req, or a copy of it, with a body that every attempt can send. It closes the body if it fails.
func (t *Transport) repeatable(req *http.Request) (*http.Request, error) {
	if req.Body == nil || req.Body == http.NoBody || req.GetBody != nil || t.set.MaxAttempts == 1 {
		return req, nil
	}
	limit := t.set.BufferRequest
	if limit == 0 {
		_ = req.Body.Close() //nolint:errcheck // it was not read
		return nil, ErrBodyNotRepeatable
	}
	if req.ContentLength > limit {
		_ = req.Body.Close() //nolint:errcheck // it was not read
		return nil, fmt.Errorf("%w: it has %d bytes, Options.BufferRequest is %d", ErrBodyNotRepeatable, req.ContentLength, limit)
	}
	stop := context.AfterFunc(req.Context(), func() { _ = req.Body.Close() }) //nolint:errcheck // the request has ended
	text, err := io.ReadAll(io.LimitReader(req.Body, limit+1))
	if stop() {
		_ = req.Body.Close() //nolint:errcheck // the body is read already
	}
	if ctxErr := req.Context().Err(); ctxErr != nil {
		return nil, ctxErr
	}
	n := int64(len(text))
	switch {
	case err != nil:
		return nil, fmt.Errorf("client: the request's body: %w", err)
	case n > limit:
		return nil, fmt.Errorf("%w: it is longer than Options.BufferRequest, %d bytes", ErrBodyNotRepeatable, limit)
	case req.ContentLength > 0 && n != req.ContentLength:
		return nil, fmt.Errorf("%w: it has %d bytes, ContentLength=%d", errBodyLength, n, req.ContentLength)
	}
	buffered := req.WithContext(req.Context())
	if len(req.Trailer) == 0 { // with one, the length stays unknown: trailers need chunks
		buffered.ContentLength = n
	}
	buffered.GetBody = func() (io.ReadCloser, error) {
		if n == 0 && len(req.Trailer) == 0 {
			return http.NoBody, nil
		}
		return io.NopCloser(bytes.NewReader(text)), nil
	}
	buffered.Body, _ = buffered.GetBody() //nolint:errcheck // it returns no error
	return buffered, nil
}

var errBodyLength = errors.New("client: the length of the request's body is not its ContentLength")

func bodyFor(req *http.Request, n int) (io.ReadCloser, error) {
	if n == 1 || req.Body == nil || req.Body == http.NoBody {
		return req.Body, nil
	}
	body, err := req.GetBody()
	if err != nil {
		return nil, fmt.Errorf("client: the request's GetBody: %w", err)
	}
	return body, nil
}
