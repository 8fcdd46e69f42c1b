package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce/client"
	"github.com/everonce/everonce/saga"
)

// services are the participants, as the order service calls them.
type services struct {
	client *http.Client
	addrs  map[string]string // by name
}

func newServices(addrs map[string]string) (*services, error) {
	transport, err := client.NewTransport(nil, &client.Options{
		AttemptTimeout: 150 * time.Millisecond, MaxAttempts: 3, Backoff: 20 * time.Millisecond,
	})
	if err != nil {
		return nil, err
	}
	return &services{&http.Client{Transport: transport}, addrs}, nil
}

// action returns an action that is done by a participant: "stock/reserve".
func (s *services) action(path string) func(context.Context, *saga.Call[Order]) (any, error) {
	return func(ctx context.Context, c *saga.Call[Order]) (any, error) { return s.call(ctx, path, c) }
}

func (s *services) compensation(path string) func(context.Context, *saga.Call[Order]) error {
	return func(ctx context.Context, c *saga.Call[Order]) error {
		_, err := s.call(ctx, path, c)
		return err
	}
}

// call sends a call of a saga to a participant. The key and the branch are the same at every try.
func (s *services) call(ctx context.Context, path string, c *saga.Call[Order]) (receipt string, err error) {
	body, err := json.Marshal(c.Input)
	if err != nil {
		return "", err
	}
	service, operation, _ := strings.Cut(path, "/")
	req, err := http.NewRequestWithContext(client.WithKey(ctx, c.Key), http.MethodPost, "http://"+s.addrs[service]+"/"+operation, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	for name, value := range c.Branch().Headers() {
		req.Header.Set(name, value)
	}
	res, err := s.client.Do(req)
	if err != nil {
		return "", err // the outcome is unknown
	}
	defer res.Body.Close() //nolint:errcheck // it was read
	text, err := io.ReadAll(res.Body)
	switch {
	case err != nil:
		return "", err
	case res.StatusCode == http.StatusUnprocessableEntity: // refused for good: the saga goes back
		return "", everonce.Permanent("refused", errors.New(string(bytes.TrimSpace(text))), nil)
	case res.StatusCode != http.StatusOK:
		return "", fmt.Errorf("%s answered %s", service, res.Status)
	}
	return string(text), nil
}
