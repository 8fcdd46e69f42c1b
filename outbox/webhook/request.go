package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/internal/envelope"
	"github.com/everonce/everonce/outbox"
)

const secretPrefix = "whsec_"

var (
	errURL    = errors.New("webhook: the URL is not http://… or https://… with a host")
	errSecret = errors.New(`webhook: a secret is not "whsec_" and the base64 of 24 to 64 bytes`)
)

// parsedEndpoint is an endpoint with its URL and secrets parsed.
type parsedEndpoint struct {
	url  *url.URL
	keys [][]byte
}

func (e *Endpoint) parse() (c parsedEndpoint, err error) {
	if c.url, err = url.Parse(e.URL); err != nil || c.url.Scheme != "http" && c.url.Scheme != "https" || c.url.Hostname() == "" {
		return c, errURL // without the parser's error, which quotes it
	}
	for _, secret := range e.Secrets {
		text, ok := strings.CutPrefix(secret, secretPrefix)
		key, err := base64.StdEncoding.DecodeString(text)
		if !ok || err != nil || len(key) < 24 || len(key) > 64 {
			return c, errSecret
		}
		c.keys = append(c.keys, key)
	}
	return c, nil
}

// framing are headers that belong to a connection.
var framing = []string{"Connection", "Expect", "Keep-Alive", "Proxy-Connection", "Te", "Upgrade"}

// request returns the request that sends an event.
func (e *Endpoint) request(ctx context.Context, event *outbox.Event, now time.Time) (*http.Request, error) {
	to, err := e.parse()
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL, bytes.NewReader(event.Payload))
	if err != nil {
		return nil, errURL
	}
	h := req.Header
	for name, value := range envelope.HTTP.Headers(envelope.Envelope{Type: event.Type, Source: event.Topic, Key: event.Key, Time: event.CreatedAt}) {
		h.Set(name, value)
	}
	for name, value := range event.Headers {
		h.Set(name, value)
	}
	for _, name := range framing {
		h.Del(name)
	}
	h.Set("User-Agent", "everonce-webhook")
	for name, values := range e.Header {
		h[http.CanonicalHeaderKey(name)] = values
	}
	id, at := encode(event.ID, "."), strconv.FormatInt(now.Unix(), 10)
	for name, value := range map[string]string{
		"Content-Type": event.ContentType, "Idempotency-Key": `"` + id + `"`, "Webhook-Id": id, "Webhook-Timestamp": at,
		"Webhook-Signature": signatures(to.keys, id, at, event.Payload),
	} {
		if h.Set(name, value); value == "" {
			h.Del(name)
		}
	}
	for name, values := range h {
		if !isToken(name) || strings.ContainsFunc(strings.Join(values, ""), isControl) {
			return nil, everonce.Permanent("header", errors.New("webhook: a header of the event has a name or a value that HTTP does not allow"), nil)
		}
	}
	return req, nil
}

// signatures returns the signatures of a request, one for each key.
func signatures(keys [][]byte, id, at string, payload []byte) string {
	all := make([]string, len(keys))
	for i, key := range keys {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + at + "."))
		mac.Write(payload)
		all[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	return strings.Join(all, " ")
}

// encode percent-encodes a text except for visible ASCII, and also encodes quotation marks, backslashes and the
// characters in more. Different texts have different encodings.
func encode(text, more string) string {
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`%"\`+more, c) >= 0 {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// isToken reports whether s is a valid header name (RFC 9110, 5.6.2).
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c) })
}

func isControl(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }
