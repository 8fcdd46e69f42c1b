package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/everonce/everonce/cmd/everonce/internal/demo/payment"
)

// Client sends mails through a gateway.
type Client struct {
	url  string
	http *http.Client
}

// NewClient returns a client of the gateway at a base URL.
func NewClient(url string) *Client {
	return &Client{url: url, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
}

// Send hands a mail over and returns its number. An error says nothing about whether it was sent.
func (c *Client) Send(ctx context.Context, mail payment.Mail) (string, error) {
	body, err := json.Marshal(mail)
	if err != nil {
		return "", err
	}
	var sent payment.Sent
	answer, err := c.do(ctx, http.MethodPost, "/mails", body)
	if err != nil {
		return "", err
	}
	if err := json.Unmarshal(answer, &sent); err != nil {
		return "", fmt.Errorf("the gateway's answer: %w", err)
	}
	return sent.ID, nil
}

// Busy returns how many mails the gateway is working on.
func (c *Client) Busy(ctx context.Context) (int, error) {
	answer, err := c.do(ctx, http.MethodGet, "/busy", nil)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(answer))
}

func (c *Client) do(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close() //nolint:errcheck // it was only read
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the gateway answers %s", res.Status)
	}
	return answer, nil
}
