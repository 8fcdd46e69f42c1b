// Package client is the demo's client: it sends every payment, again and again, until it has a final answer. It keeps
// no state that the audit would need.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/everonce/everonce/demo/internal/shop"
	"github.com/everonce/everonce/httponce/client"
)

// How the client waits.
const (
	// patience is how long it waits for one answer: longer than the service waits for another delivery.
	patience = 5 * time.Second
	// pause lies between a delivery that got no answer and the next; it grows up to maxPause.
	pause    = 20 * time.Millisecond
	maxPause = 250 * time.Millisecond
)

// ReplayedHeader is the header of an answer that is a repetition. Its value is elided where the original answer is not
// known.
const (
	ReplayedHeader = "Idempotent-Replayed"
	elided         = "elided"
)

// Client sends payments.
type Client struct {
	url   string
	http  *http.Client
	width int

	mu     sync.Mutex
	counts Counts
}

// Counts is how far a client has come.
type Counts struct {
	// Begun is how many payments have been sent at all, Final how many have their final answer, and
	// Waiting how many are being sent still.
	Begun, Final, Waiting int
}

// New returns a client of the service at a base URL, that sends width payments at a time.
func New(url string, width int) (*Client, error) {
	// Without keep-alive: see package network.
	t, err := client.NewTransport(&http.Transport{DisableKeepAlives: true}, &client.Options{
		MaxAttempts: math.MaxInt32, MaxElapsed: -1, AttemptTimeout: patience, // it never gives up: the run has a limit
		Backoff: pause, MaxBackoff: maxPause,
		RetryIf: func(res *http.Response, _ error, retry bool) bool {
			return retry || res != nil && res.StatusCode == http.StatusInternalServerError // the service without everonce has no better word
		},
	})
	return &Client{url: url, width: width, http: &http.Client{Transport: t}}, err
}

// Counts returns how far the client has come.
func (c *Client) Counts() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts
}

// Pay sends the payments of a channel, until it is closed and each has a final answer, or the answer that its outcome
// is unknown: these are returned.
func (c *Client) Pay(ctx context.Context, payments <-chan shop.Payment) (unknown []shop.Payment, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for range c.width {
		wg.Go(func() {
			for {
				var p shop.Payment
				var more bool
				select {
				case p, more = <-payments:
				case <-ctx.Done():
				}
				if !more {
					return
				}
				c.count(func() { c.counts.Begun++; c.counts.Waiting++ })
				final, err := c.payOne(ctx, p)
				c.count(func() {
					c.counts.Waiting--
					switch {
					case err != nil:
						cancel(err)
					case final:
						c.counts.Final++
					default:
						unknown = append(unknown, p)
					}
				})
			}
		})
	}
	wg.Wait()
	return unknown, context.Cause(ctx)
}

func (c *Client) count(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// payOne sends one payment until it is final (true) or unknown (false).
func (c *Client) payOne(ctx context.Context, p shop.Payment) (bool, error) {
	body, err := json.Marshal(p)
	if err != nil {
		return false, err
	}
	req, err := http.NewRequestWithContext(client.WithKey(ctx, p.Key), http.MethodPost, c.url+"/payments", bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	res, err := c.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return false, err
	}
	defer res.Body.Close() //nolint:errcheck // it was only read
	answer, err := io.ReadAll(res.Body)
	switch {
	case err != nil:
		return false, err
	case res.StatusCode == http.StatusOK && res.Header.Get(ReplayedHeader) == elided:
		return true, nil // done, as the operator has found out: the answer is not known
	case res.StatusCode == http.StatusOK:
		return true, finalAnswer(p, answer)
	case res.StatusCode == http.StatusConflict && isUnknown(answer):
		return false, nil
	}
	return false, fmt.Errorf("the service answers %d and %q", res.StatusCode, answer)
}

// isUnknown reads a problem document: is it of no use to come back before somebody has settled what is unknown?
func isUnknown(answer []byte) bool {
	var problem struct{ Type string }
	return json.Unmarshal(answer, &problem) == nil && strings.TrimSuffix(path.Base(problem.Type), ".md") == "outcome-unknown"
}

// finalAnswer checks that a receipt belongs to this payment.
func finalAnswer(p shop.Payment, answer []byte) error {
	var r shop.Receipt
	if err := json.Unmarshal(answer, &r); err != nil {
		return fmt.Errorf("the answer to the payment of %s: %w", p.Order, err)
	}
	if r.Order != p.Order || r.Charge == 0 || r.Mail == "" {
		return fmt.Errorf("the answer to the payment of %s is %q", p.Order, answer)
	}
	return nil
}
