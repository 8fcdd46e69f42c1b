package kafkaonce

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/everonce/everonce"
)

// ErrUnreachable says that no broker can be reached, or that it refuses the user.
var ErrUnreachable = errors.New("kafkaonce: the broker cannot be reached")

var errURL = fmt.Errorf("%w: kafkaonce: the URL is not kafka://[user:password@]host:port[,host:port…], or kafkas://… for TLS, with ?mechanism=plain, scram-sha-256 or scram-sha-512", everonce.ErrInvalidArgument)

// connectTimeout bounds the requests before anything is consumed.
const connectTimeout = 15 * time.Second

// brokers returns the client's options for a URL. Errors do not quote the URL, which may hold a password.
func brokers(address string) ([]kgo.Opt, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "kafka" && u.Scheme != "kafkas" {
		return nil, errURL
	}
	opts := []kgo.Opt{kgo.SeedBrokers(strings.Split(u.Host, ",")...), kgo.ClientID("everonce"), kgo.MetadataMinAge(250 * time.Millisecond) /* a topic to consume waits for it */}
	if u.Scheme == "kafkas" {
		opts = append(opts, kgo.DialTLSConfig(&tls.Config{MinVersion: tls.VersionTLS12}))
	}
	if u.User == nil {
		return opts, nil
	}
	user := u.User.Username()
	password, _ := u.User.Password()
	switch u.Query().Get("mechanism") {
	case "", "plain":
		return append(opts, kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism())), nil
	case "scram-sha-256":
		return append(opts, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha256Mechanism())), nil
	case "scram-sha-512":
		return append(opts, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha512Mechanism())), nil
	}
	return nil, errURL
}

// newClient returns a client, which connects at its first request. theirs are the application's options, ours the
// package's.
func newClient(address string, theirs, ours []kgo.Opt) (*kgo.Client, error) {
	opts, err := brokers(address)
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(append(append(opts, theirs...), ours...)...)
	if err != nil {
		return nil, fmt.Errorf("%w: kafkaonce: Options.Client: %w", everonce.ErrInvalidArgument, err)
	}
	return client, nil
}

// reach sends a request to check that a broker answers.
func reach(ctx context.Context, client *kgo.Client) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := client.Ping(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return nil
}
