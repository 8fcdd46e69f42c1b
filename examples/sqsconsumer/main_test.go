package main

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce/examples/internal/pgschema"
	"github.com/everonce/everonce/examples/internal/program"
	"github.com/everonce/everonce/internal/testing/testserver"
)

// Every order is sent three times: there is one invoice for each.
func TestRun(t *testing.T) {
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL_SQS": testserver.URL(t, "sqs"), "AWS_REGION": "elasticmq", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
		"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
	} {
		t.Setenv(name, value)
	}
	database := pgschema.URL(t)
	cfg, err := config.LoadDefaultConfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	client, queue := sqs.NewFromConfig(cfg), "example-"+strings.ToLower(rand.Text())
	publish := program.Build(t, "publish")
	for range 3 {
		for _, id := range []string{"o-1", "o-2"} {
			program.Run(t.Context(), t, "", publish, queue, `{"id":"`+id+`","cents":1200}`)
		}
	}
	url := remove(t, client, queue)
	remove(t, client, queue+"-dead")
	ctx, end := context.WithTimeout(t.Context(), time.Minute)
	defer end()
	done := make(chan error, 1)
	go func() { done <- run(ctx, database, queue) }()
	for empty := false; !empty; {
		out, err := client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []types.QueueAttributeName{"All"}})
		if err != nil {
			t.Fatal(err)
		}
		empty = out.Attributes["ApproximateNumberOfMessages"] == "0" && out.Attributes["ApproximateNumberOfMessagesNotVisible"] == "0"
	}
	end()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	db, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(context.Background()) //nolint:errcheck // it was only read
	var invoices, distinct int
	if err := db.QueryRow(t.Context(), `SELECT count(*), count(DISTINCT order_id) FROM invoice`).Scan(&invoices, &distinct); err != nil || invoices != 2 || distinct != 2 {
		t.Errorf("%d invoices of %d orders, %v", invoices, distinct, err)
	}
}

// remove removes a queue at the end of the test.
func remove(t *testing.T, client *sqs.Client, name string) (url string) {
	t.Helper()
	out, err := client.GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: &name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := client.DeleteQueue(context.Background(), &sqs.DeleteQueueInput{QueueUrl: out.QueueUrl}); err != nil {
			t.Error(err)
		}
	})
	return *out.QueueUrl
}
