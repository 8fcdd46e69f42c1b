package storeurl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/dynamostore"
)

// readDynamoDB reads dynamodb://TABLE?region=…&endpoint=…. Credentials, and whatever the URL leaves out, come from the
// same places as for the AWS tools: the environment, the shared files, or the machine.
func readDynamoDB(text string, opts Options, create bool) (Opener, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrURL, err)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil || u.Host == "" || u.User != nil || u.Path != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%w: a DynamoDB URL is dynamodb://TABLE?region=REGION", ErrURL)
	}
	region, endpoint := query.Get("region"), query.Get("endpoint")
	for name := range query {
		if name != "region" && name != "endpoint" {
			return nil, fmt.Errorf("%w: a DynamoDB URL has the parameters region and endpoint alone", ErrURL)
		}
	}
	if e, err := url.Parse(endpoint); err != nil || endpoint != "" && (e.Host == "" || e.Scheme != "http" && e.Scheme != "https") {
		return nil, fmt.Errorf("%w: the endpoint of a DynamoDB URL is an http or https URL", ErrURL)
	}
	if opts.TablePrefix != "" {
		return nil, fmt.Errorf("%w: a DynamoDB URL names the table itself, without a prefix", everonce.ErrInvalidArgument)
	}
	set := &dynamostore.Options{Table: u.Host}
	if err := set.Validate(); err != nil {
		return nil, err
	}
	return func(ctx context.Context) (Store, error) {
		s, err := connectDynamoDB(ctx, region, endpoint, set, create, opts.Log)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", everonce.ErrStore, err)
		}
		return s, nil
	}, nil
}

func connectDynamoDB(ctx context.Context, region, endpoint string, set *dynamostore.Options, create bool, log *slog.Logger) (*dynamoDB, error) {
	cfg, err := config.LoadDefaultConfig(ctx, config.WithRegion(region))
	if err != nil {
		return nil, err
	}
	d := &dynamoDB{transport: new(http.Transport)}
	if b, ok := cfg.HTTPClient.(*awshttp.BuildableClient); ok { // it cannot be closed
		d.transport = b.GetTransport()
		cfg.HTTPClient = &http.Client{Transport: d.transport}
	}
	client := dynamodb.NewFromConfig(cfg, func(o *dynamodb.Options) {
		if endpoint != "" {
			o.BaseEndpoint = &endpoint
		}
	})
	d.Store, err = dynamostore.New(ctx, client, set)
	_, missing := errors.AsType[*types.ResourceNotFoundException](err)
	switch {
	case create && missing:
		if migrated := dynamostore.Migrate(ctx, client, set); migrated != nil {
			err = fmt.Errorf("%w; %w", err, migrated)
		} else {
			d.Store, err = dynamostore.New(ctx, client, set)
		}
	case create && err == nil:
		switchTTLOn(ctx, client, set, log)
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// ttlTimeout bounds the look at the TTL of a table, which may be in a change.
const ttlTimeout = 5 * time.Second

// switchTTLOn switches on the TTL of an existing table. A service works without it, and may lack the permission to
// look.
func switchTTLOn(ctx context.Context, client *dynamodb.Client, set *dynamostore.Options, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, ttlTimeout)
	defer cancel()
	if err := dynamostore.Migrate(ctx, client, set); err != nil && log != nil {
		log.Warn("the table's TTL is off, or cannot be looked at: without it, records stay until \"everonce keys purge\" removes them", "error", err)
	}
}

// dynamoDB closes its connections with it.
type dynamoDB struct {
	*dynamostore.Store
	transport *http.Transport
}

func (d *dynamoDB) Close() error {
	d.transport.CloseIdleConnections()
	return nil
}
