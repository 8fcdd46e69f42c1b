// Package client is the demo's client: it sends every payment, again and again, until it has a final
// answer. It remembers nothing that the audit would need.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"sync"
	"time"

	"github.com/everonce/everonce/cmd/everonce/internal/demo/payment"
)

// How the client waits.
const (
	// patience is how long it waits for one answer.
	patience = 2 * time.Second
	// pause lies between a delivery that got no answer and the next; it grows up to maxPause.
	pause    = 20 * time.Millisecond
	maxPause = 250 * time.Millisecond
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
func New(url string, width int) *Client {
	return &Client{
		url: url, width: width,
		// Without keep-alive: see package network.
		http: &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}},
	}
}

// Counts returns how far the client has come.
func (c *Client) Counts() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts
}

func (c *Client) count(change func(*Counts)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.counts)
}

// Pay sends payments until each has a final answer, or the answer that its outcome is unknown: these are returned.
func (c *Client) Pay(ctx context.Context, payments iter.Seq[payment.Payment]) (unknown []payment.Payment, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work := make(chan payment.Payment)
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range c.width {
		wg.Go(func() {
			for p := range work {
				c.count(func(n *Counts) { n.Begun++; n.Waiting++ })
				final, err := c.payOne(ctx, p)
				c.count(func(n *Counts) {
					n.Waiting--
					if final && err == nil {
						n.Final++
					}
				})
				switch {
				case err != nil:
					cancel(err)
				case !final:
					mu.Lock()
					unknown = append(unknown, p)
					mu.Unlock()
				}
			}
		})
	}
feed:
	for p := range payments {
		select {
		case work <- p:
		case <-ctx.Done():
			break feed
		}
	}
	close(work)
	wg.Wait()
	return unknown, context.Cause(ctx)
}

// payOne sends one payment until it is final (true) or unknown (false).
func (c *Client) payOne(ctx context.Context, p payment.Payment) (bool, error) {
	body, err := json.Marshal(p)
	if err != nil {
		return false, err
	}
	for try := 1; ; try++ {
		wait := min(time.Duration(try)*pause, maxPause)
		status, answer, err := c.send(ctx, p.Key, body)
		switch {
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case err != nil: // no answer: it may have been done, or not
		case status == http.StatusOK:
			return true, finalAnswer(p, answer)
		default:
			no, err := readRefusal(status, answer)
			if err != nil {
				return false, err
			}
			if no.Code == payment.CodeUnknown {
				return false, nil
			}
			if no.RetryAfter > 0 {
				wait = min(time.Duration(no.RetryAfter)*time.Millisecond, maxPause)
			}
		}
		if err := sleep(ctx, wait); err != nil {
			return false, err
		}
	}
}

func (c *Client) send(ctx context.Context, key string, body []byte) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/payments", bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set(payment.KeyHeader, key)
	res, err := c.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close() //nolint:errcheck // it was only read
	answer, err := io.ReadAll(res.Body)
	return res.StatusCode, answer, err
}

// finalAnswer checks that a receipt is of this payment.
func finalAnswer(p payment.Payment, answer []byte) error {
	var r payment.Receipt
	if err := json.Unmarshal(answer, &r); err != nil {
		return fmt.Errorf("the answer to the payment of %s: %w", p.Order, err)
	}
	if r.Order != p.Order || r.Charge == 0 || r.Mail == "" {
		return fmt.Errorf("the answer to the payment of %s is %q", p.Order, answer)
	}
	return nil
}

func readRefusal(status int, answer []byte) (payment.Refusal, error) {
	var no payment.Refusal
	if err := json.Unmarshal(answer, &no); err != nil {
		return no, fmt.Errorf("the service answers %d and %q", status, answer)
	}
	switch no.Code {
	case payment.CodeInProgress, payment.CodeUnknown, payment.CodeFailed:
		return no, nil
	}
	return no, fmt.Errorf("the service answers %d, %s: %s", status, no.Code, no.Message)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
