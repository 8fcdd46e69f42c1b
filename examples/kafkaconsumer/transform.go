package main

import (
	"context"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/everonce/everonce/consume/kafkaonce"
)

// The two below are for the how-to; main runs the plain consumer.
var (
	_ = invoicing
	_ = withOffsets
)

// invoicing makes invoices of orders, from Kafka to Kafka.
func invoicing(ctx context.Context, broker string) error {
	transform, err := kafkaonce.DialTransform(ctx, broker, "orders", "invoicing", func(ctx context.Context, r *kgo.Record) ([]*kgo.Record, error) {
		return []*kgo.Record{{Topic: "invoices", Key: r.Key, Value: r.Value, Headers: r.Headers}}, nil
	}, &kafkaonce.TransformOptions{TransactionalID: os.Getenv("POD_NAME")})
	if err != nil {
		return err
	}
	return transform.Run(ctx)
}
