package client

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

type keyInContext struct{}

// WithKey returns a context that carries the key of one operation. All attempts of the operation have this key. To
// repeat the operation after a restart of the process, derive the key from what the operation is about
// ("charge-order-7"), or store it beside the order before the first attempt. Two operations with one key are one
// operation: never use the context for a second one.
//
// A [Transport] refuses an empty key, and one that cannot be sent, with [ErrInvalidKey].
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, keyInContext{}, key)
}

// operation is what the attempts and redirects of an operation share. It does not change.
type operation struct {
	values []string          // of the header
	put    func(http.Header) // writes the headers of an attempt, if it has others than the key
	call   *call             // in a session; nil for an operation with a key
	url    *url.URL          // of the first request
	begun  time.Time
	most   time.Duration // that an attempt may take, if above zero
	until  time.Time     // when it must have ended, for the sake of the request's deadline; zero if it has none
}

// operationInContext is the key of the operation in the context of an answer's request: http.Client makes a new request
// for a redirect, without the key's header.
type operationInContext struct{}

// operationOf returns the operation of a request, or nil, and whether it was redirected here.
func (t *Transport) operationOf(req *http.Request) (op *operation, redirected bool, err error) {
	if req.Response != nil && req.Response.Request != nil {
		op, redirected = req.Response.Request.Context().Value(operationInContext{}).(*operation)
	}
	if req.URL == nil || !t.isOperation(req.Method) {
		return op, redirected, nil
	}
	if redirected {
		if !t.mayFollow(op.url, req.URL) {
			return nil, true, fmt.Errorf("%w: from %s to %s", ErrRedirectedElsewhere, op.url.Host, req.URL.Host)
		}
		return op, true, nil
	}
	op = &operation{url: req.URL, begun: time.Now()}
	if own, found := t.ownValues(req.Header); found {
		if strings.Join(own, "") == "" {
			return nil, false, fmt.Errorf("%w: the request's own %s is empty", ErrInvalidKey, t.set.KeyHeader)
		}
		op.values = own
		return op, false, nil
	}
	key, err := t.keyFor(req)
	if err != nil {
		return nil, false, err
	}
	value, err := fieldOf(key, t.set.RawKey)
	if err != nil {
		return nil, false, err
	}
	op.values = []string{value}
	return op, false, nil
}

func (t *Transport) keyFor(req *http.Request) (string, error) {
	if key, ok := req.Context().Value(keyInContext{}).(string); ok {
		return key, nil
	}
	if t.set.KeyFunc == nil {
		return rand.Text(), nil
	}
	key, err := t.set.KeyFunc(req)
	if err != nil {
		return "", fmt.Errorf("client: Options.KeyFunc: %w", err)
	}
	return key, nil
}

func (t *Transport) isOperation(method string) bool {
	return slices.Contains(t.set.Methods, method) || method == "" && slices.Contains(t.set.Methods, http.MethodGet)
}

// ownValues returns the values of the key's header that the caller set, in any spelling of its name.
func (t *Transport) ownValues(h http.Header) (values []string, found bool) {
	for name, v := range h {
		if strings.EqualFold(name, t.set.KeyHeader) {
			values, found = append(values, v...), true
		}
	}
	return values, found
}

func (t *Transport) mayFollow(from, to *url.URL) bool {
	if strings.EqualFold(from.Hostname(), to.Hostname()) {
		switch {
		case from.Scheme == to.Scheme && portOf(from) == portOf(to):
			return true
		case from.Scheme == "http" && to.Scheme == "https" && portOf(from) == "80" && portOf(to) == "443":
			return true
		}
	}
	return t.set.FollowTo != nil && t.set.FollowTo(from, to)
}

func portOf(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}
