package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/spf13/cobra"

	"github.com/everonce/everonce/internal/testserver"
)

// queuesSQS sets the environment up for the server, and makes a queue with the name of a relay's topic and one with a
// dead letter.
func queuesSQS(t *testing.T) (client *sqs.Client, queue, url string) {
	t.Helper()
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL_SQS": testserver.URL(t, "sqs"), "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
		"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
	} {
		t.Setenv(name, value)
	}
	client, err := clientSQS(t.Context(), "sqs://elasticmq")
	if err != nil {
		t.Fatal(err)
	}
	queue = "cli-" + strings.ToLower(rand.Text())
	dead := makeSQS(t, client, queue+"-dead", nil)
	out, err := client.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: &dead, AttributeNames: []types.QueueAttributeName{"QueueArn"}})
	if err != nil {
		t.Fatal(err)
	}
	url = makeSQS(t, client, queue, map[string]string{"RedrivePolicy": fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":100}`, out.Attributes["QueueArn"])})
	if _, err := client.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &dead, MessageBody: aws.String(`{"order":7}`)}); err != nil {
		t.Fatal(err)
	}
	return client, queue, url
}

func makeSQS(t *testing.T, client *sqs.Client, name string, attributes map[string]string) string {
	t.Helper()
	out, err := client.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		//nolint:errcheck // another test's may have its name
		_, _ = client.DeleteQueue(context.Background(), &sqs.DeleteQueueInput{QueueUrl: out.QueueUrl})
	})
	return *out.QueueUrl
}

// receiveSQS waits for a message.
func receiveSQS(t *testing.T, client *sqs.Client, url string) types.Message {
	t.Helper()
	for range 30 {
		out, err := client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &url, WaitTimeSeconds: 2, MessageAttributeNames: []string{"All"}})
		if err != nil {
			t.Fatal(err)
		}
		if len(out.Messages) > 0 {
			return out.Messages[0]
		}
	}
	t.Fatal("there is no message")
	return types.Message{}
}

// The dead letters of a queue of SQS are listed, and replayed.
func TestDeadLettersOfSQS(t *testing.T) {
	client, queue, url := queuesSQS(t)
	for _, tc := range []struct {
		args, queue string
		want        string
	}{
		{"dlq list", queue, "broker_max_receive_count"},
		{"dlq list", url, "broker_max_receive_count"},
		{"dlq replay --reason broker_max_receive_count --yes", queue, "1"},
	} {
		var out, errs strings.Builder
		code := execute(t.Context(), append(strings.Fields(tc.args), "--broker", "sqs://elasticmq", "--queue", tc.queue), strings.NewReader(""), &out, &errs)
		if code != exitOK || !strings.Contains(out.String(), tc.want) {
			t.Fatalf("%s: %d: %s%s", tc.args, code, out.String(), errs.String())
		}
	}
	if m := receiveSQS(t, client, url); *m.Body != `{"order":7}` {
		t.Errorf("the replay is %q", *m.Body)
	}
	args := []string{"dlq", "list", "--broker", "sqs://elasticmq", "--queue", "there-is-none"}
	if code := execute(t.Context(), args, strings.NewReader(""), io.Discard, io.Discard); code != exitNotFound {
		t.Errorf("without a queue it ends with %d", code)
	}
}

// On SQS a queue's URL stands for its name. On other brokers it is itself a name: its last part would name another
// queue or, if empty, all queues.
func TestTheNameOfAQueue(t *testing.T) {
	t.Setenv(brokerVariable, "sqs://eu-central-1")
	for _, c := range []struct{ broker, queue, want string }{
		{"", "https://sqs/1/orders", "orders"},
		{"amqp://localhost", "https://shop/orders", "https://shop/orders"},
		{"amqp://localhost", "https://shop/", "https://shop/"},
	} {
		var w which
		w.flags(new(cobra.Command))
		if f, err := w.filter(&brokerFlags{url: c.broker, queue: c.queue}, 0); err != nil || f.Queue != c.want {
			t.Errorf("%s on %q: %q, %v; want %q", c.queue, c.broker, f.Queue, err, c.want)
		}
	}
}

// SQS gets an event in the queue that has its topic's name.
func TestRelayToSQS(t *testing.T) {
	client, _, _ := queuesSQS(t)
	url := makeSQS(t, client, "orders", nil)
	cmd, _, log := startRelay(t, "--to", "sqs://elasticmq")
	for {
		m := receiveSQS(t, client, url)
		if aws.ToString(m.MessageAttributes["message-id"].StringValue) == "blocked" {
			if *m.Body != `{"card":"4242"}` {
				t.Errorf("the message is %q", *m.Body)
			}
			break
		}
	}
	endRelay(t, cmd, log)
}
