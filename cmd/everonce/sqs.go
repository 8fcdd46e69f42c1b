package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/sqsonce"
	"github.com/everonce/everonce/outbox"
)

const sqsScheme = "sqs://"

// isSQS reports whether a URL names SQS in a region.
func isSQS(url string) bool { return strings.HasPrefix(url, sqsScheme) }

// clientSQS returns a client of SQS in the region that a URL names; everything else is where the SDK finds it.
func clientSQS(ctx context.Context, url string) (*sqs.Client, error) {
	region := strings.TrimSuffix(strings.TrimPrefix(url, sqsScheme), "/")
	if strings.ContainsAny(region, "/:@") { // a host or a password, perhaps
		return nil, usagef("%s must be followed by a region, like sqs://eu-central-1, and by nothing else (set AWS_ENDPOINT_URL_SQS for another endpoint)", sqsScheme)
	}
	var load []func(*config.LoadOptions) error
	if region != "" {
		load = append(load, config.WithRegion(region))
	}
	cfg, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return nil, fmt.Errorf("the configuration of AWS: %w", err)
	}
	if cfg.Region == "" {
		return nil, usagef("which region? Give sqs://REGION, or set AWS_REGION")
	}
	return sqs.NewFromConfig(cfg), nil
}

// openSQS opens the dead letters of a queue of SQS.
func openSQS(ctx context.Context, url string, b *brokerFlags) (consume.DeadLetters, error) {
	client, err := clientSQS(ctx, url)
	if err != nil {
		return nil, err
	}
	return sqsonce.DialDeadLetters(ctx, client, sqsonce.Queue{Name: b.queue, DeadLetters: b.letters})
}

// publisherSQS publishes to SQS.
func publisherSQS(to string) (outbox.Publisher, error) {
	client, err := clientSQS(context.Background(), to)
	if err != nil {
		return nil, err
	}
	return sqsonce.NewPublisher(client, nil)
}
