// Package webhook publishes the events of an outbox by HTTP, signed according to Standard Webhooks.
//
//	publisher, err := webhook.New(webhook.Endpoint{URL: "https://example.com/hooks", Secrets: []string{secret}}, nil)
//	…
//	relay, err := box.Relay(publisher, nil)
//
// # What is sent
//
// A POST with the event's payload, content type and headers, and:
//
//   - Idempotency-Key and webhook-id: the event's ID, the same whenever the event is sent. Package httponce, and any
//     other receiver that supports either header, recognises an event that is sent again.
//   - webhook-timestamp: when it is sent, in seconds; webhook-signature: an HMAC-SHA256 of ID, time and payload for
//     each secret.
//   - ce-type, ce-source (the topic), ce-partitionkey (the key) and ce-time (when it was inserted), unless the event
//     has such a header: encoded as CloudEvents require.
//
// [ReadMessage] reads them. In the ID, characters outside of visible ASCII are percent-encoded, and so are "%",
// quotation marks, backslashes, and full stops, which separate the signed parts.
//
// # What the answer means
//
// 2xx: the event is published. 408, 425, 429, 5xx, a redirect that is not followed, and the 409 with which package
// httponce says that the request is in progress: the event is tried again, after Retry-After if present, and the try is
// counted. Any other 4xx: the event is set aside, with the code "gone" (410) or "rejected". No answer:
// [outbox.ErrUnavailable].
//
// # Where it connects to
//
// A person who can choose the URL of a webhook could make the relay reach into its own network. So by default no
// connection is made to an address that is not public, whatever name led there, and no proxy is used. A redirect is
// followed only if it keeps method, host and port (307, 308).
package webhook

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/outbox"
)

// Endpoint is a destination of events. Neither an error nor a log holds its URL's path or query, a secret or a header's
// value.
type Endpoint struct {
	// URL begins with http:// or https://.
	URL string
	// Secrets sign each request, as "whsec_" and the base64 of 24 to 64 bytes. Several are for rotation: the receiver
	// needs one of them. Without a secret nothing is signed.
	Secrets []string
	// Header is added to each request, for example an Authorization.
	Header http.Header
}

// Options are the options of a publisher. The zero value of each field is its default.
type Options struct {
	// Parallel is the largest number of simultaneous requests to one destination, and of one call of the publisher: a
	// destination is scheme, host and port of a URL, and a relay makes separate calls for each. All destinations of the
	// publisher together have 16 times as many, so 256. Events with the same key are sent one after the other. Default 16.
	Parallel int
	// Timeout bounds a request with its response. It should be less than [outbox.RelayOptions.PublishTimeout], which
	// bounds a whole call. Default 5 s.
	Timeout time.Duration
	// AllowPrivate allows addresses that are not public, for example in your network.
	AllowPrivate bool
	// TLS is the configuration for https:// URLs. Default: the system's roots.
	TLS *tls.Config
}

// New returns a publisher that sends all events to one endpoint. The error wraps [everonce.ErrInvalidArgument].
func New(to Endpoint, opts *Options) (outbox.Publisher, error) {
	if _, err := to.parse(); err != nil {
		return nil, fmt.Errorf("%w: %w", everonce.ErrInvalidArgument, err)
	}
	s, err := newSender(opts)
	if err != nil {
		return nil, err
	}
	return outbox.One(s.parallel, func(ctx context.Context, e *outbox.Event) error { return s.send(ctx, e, to) }), nil
}

// NewFunc returns a publisher that calls to for the endpoint of each event. If to fails, the event fails with this
// error. It must not block, and is called twice for each event. The publisher is an [outbox.Destinations] by scheme,
// host and port of the URL: a relay pauses a host that does not answer, for all paths, and goes on with the others. The
// error wraps [everonce.ErrInvalidArgument].
func NewFunc(to func(ctx context.Context, e *outbox.Event) (Endpoint, error), opts *Options) (outbox.Publisher, error) {
	if to == nil {
		return nil, fmt.Errorf("webhook: %w: to is nil", everonce.ErrInvalidArgument)
	}
	s, err := newSender(opts)
	if err != nil {
		return nil, err
	}
	return &several{to: to, Publisher: outbox.One(s.parallel, func(ctx context.Context, e *outbox.Event) error {
		endpoint, err := to(ctx, e)
		if err != nil {
			return err
		}
		return s.send(ctx, e, endpoint)
	})}, nil
}

// several publishes each event to an endpoint chosen for it.
type several struct {
	outbox.Publisher
	to func(ctx context.Context, e *outbox.Event) (Endpoint, error)
}

// Destination implements [outbox.Destinations].
func (s *several) Destination(ctx context.Context, e *outbox.Event) string {
	endpoint, err := s.to(ctx, e)
	if err != nil {
		return noEndpoint
	}
	read, err := endpoint.parse()
	if err != nil {
		return noEndpoint
	}
	return destination(read.url)
}

// noEndpoint is the destination of events without an endpoint: Publish returns the reason.
const noEndpoint = "no endpoint"

// destination returns scheme, host and port of a URL, in one form for equal destinations.
func destination(to *url.URL) string {
	port := to.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[to.Scheme]
	}
	return to.Scheme + "://" + net.JoinHostPort(strings.ToLower(to.Hostname()), port)
}

// sender sends events.
type sender struct {
	client   *http.Client
	parallel int
	slots    *slots
	timeout  time.Duration
}

// maxDestinations is how many destinations can have all of their requests in progress at once.
const maxDestinations = 16

func newSender(opts *Options) (*sender, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Parallel < 0 || o.Timeout < 0 {
		return nil, fmt.Errorf("webhook: %w: an option is negative", everonce.ErrInvalidArgument)
	}
	s := &sender{parallel: cmp.Or(o.Parallel, 16), timeout: cmp.Or(o.Timeout, 5*time.Second)}
	s.slots = newSlots(s.parallel, maxDestinations*s.parallel)
	dialer := &net.Dialer{}
	if !o.AllowPrivate {
		dialer.Control = publicOnly
	}
	s.client = &http.Client{CheckRedirect: followSameHost, Transport: &http.Transport{
		DialContext: dialer.DialContext, TLSClientConfig: o.TLS, ForceAttemptHTTP2: true, DisableCompression: true,
		MaxIdleConns: maxDestinations * s.parallel, MaxIdleConnsPerHost: s.parallel, IdleConnTimeout: 90 * time.Second, MaxResponseHeaderBytes: maxAnswer,
	}}
	return s, nil
}

// followSameHost follows a redirect that keeps method, scheme, host and port.
func followSameHost(next *http.Request, via []*http.Request) error {
	first := via[0]
	if len(via) > 3 || next.Method != first.Method || next.URL.Scheme != first.URL.Scheme || next.URL.Host != first.URL.Host {
		return http.ErrUseLastResponse
	}
	return nil
}

// headersTooLarge is the text of net/http's error for a request whose headers exceed the limit that a server advertised
// over HTTP/2: the error has no type.
const headersTooLarge = "request header list larger than peer's advertised limit"

// send sends an event, and returns its outcome.
func (s *sender) send(ctx context.Context, e *outbox.Event, to Endpoint) error {
	read, err := to.parse()
	if err != nil {
		return err
	}
	release, err := s.slots.acquire(ctx, destination(read.url))
	if err != nil {
		return fmt.Errorf("%w: webhook: %s: not sent: too many requests are in progress: %w", outbox.ErrUnavailable, read.url.Hostname(), err)
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	req, err := to.request(ctx, e, time.Now())
	if err != nil {
		return err
	}
	resp, err := s.client.Do(req)
	if err == nil {
		defer resp.Body.Close() //nolint:errcheck // what is left of it does not matter
		return outcome(req.URL.Hostname(), resp)
	}
	if e, ok := errors.AsType[*url.Error](err); ok { // it quotes the URL
		err = e.Err
	}
	err = fmt.Errorf("webhook: %s: %w", req.URL.Hostname(), err)
	if errors.Is(err, errNotPublic) {
		return err
	}
	if strings.Contains(err.Error(), headersTooLarge) {
		return everonce.Permanent("too_large", err, nil)
	}
	return fmt.Errorf("%w: %w", outbox.ErrUnavailable, err)
}
