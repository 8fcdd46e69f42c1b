package dynamostore_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/everonce/everonce/internal/testing/testserver"
)

// line is the way to the server, on which a test counts requests and spoils them.
type line struct {
	mu   sync.Mutex
	sent []string // the operations
	next []spoil  // of the next requests; those behind them pass
	then spoil    // of all requests behind them, if set
}

// spoil answers a request in the server's place, or after it.
type spoil func(send func() (*http.Response, error)) (*http.Response, error)

var errLine = errors.New("test: the line was cut")

func before(func() (*http.Response, error)) (*http.Response, error) { return nil, errLine }

func after(send func() (*http.Response, error)) (*http.Response, error) {
	if res, err := send(); err == nil {
		_ = res.Body.Close() //nolint:errcheck // it is not read
	}
	return nil, errLine
}

// refusing answers with an error of DynamoDB's.
func refusing(status int, body string) spoil {
	return func(func() (*http.Response, error)) (*http.Response, error) {
		return &http.Response{
			StatusCode: status, Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}},
			Body: io.NopCloser(strings.NewReader(body)),
		}, nil
	}
}

func throttled(code string) spoil {
	return refusing(http.StatusBadRequest, `{"__type":"com.amazonaws.dynamodb.v20120810#`+code+`","message":"slow down"}`)
}

// hour answers with a Date that is an hour off.
func hour(send func() (*http.Response, error)) (*http.Response, error) {
	res, err := send()
	if err == nil {
		res.Header.Set("Date", "Tue, 01 Jan 2019 00:00:00 GMT")
	}
	return res, err
}

func (l *line) spoil(next ...spoil) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next, l.sent = next, nil
}

// spoilAll spoils every request from here on.
func (l *line) spoilAll(how spoil) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.then, l.sent = how, nil
}

func (l *line) requests() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent
}

func (l *line) Do(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	send := func() (*http.Response, error) {
		again := req.Clone(context.WithoutCancel(req.Context()))
		again.Body = io.NopCloser(bytes.NewReader(body))
		return http.DefaultClient.Do(again)
	}
	l.mu.Lock()
	_, operation, _ := strings.Cut(req.Header.Get("X-Amz-Target"), ".")
	if operation == "GetItem" && !bytes.Contains(body, []byte(`"ConsistentRead":true`)) {
		operation += ", maybe stale" // as DynamoDB Local never is
	}
	l.sent = append(l.sent, operation)
	var how spoil
	if len(l.next) > 0 {
		how, l.next = l.next[0], l.next[1:]
	} else {
		how = l.then
	}
	l.mu.Unlock()
	if how != nil {
		return how(send)
	}
	return send()
}

// over makes a client over the line, whose SDK sends a request up to so many times.
func (l *line) over(t testing.TB, tries int) *dynamodb.Client {
	t.Helper()
	return connect(testserver.URL(t, "dynamodb"), func(o *dynamodb.Options) {
		o.HTTPClient = l
		o.RetryMaxAttempts = tries
		if tries == 1 {
			o.Retryer = aws.NopRetryer{}
		}
	})
}
