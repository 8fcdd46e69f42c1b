package sqsonce_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/sqsonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/testserver"
	"github.com/everonce/everonce/store/memstore"
)

// logged has what is logged.
type logged chan string

func (l logged) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// wants waits for a line.
func (l logged) wants(t *testing.T, part string) {
	t.Helper()
	for end := time.After(soon); ; {
		select {
		case line := <-l:
			if strings.Contains(line, part) {
				return
			}
		case <-end:
			t.Fatalf("%q is not logged", part)
		}
	}
}

// Credentials that end, and a queue that is deleted, are told in the log, and cost nothing but the time until there are others.
func TestWhatEndsWhileItRuns(t *testing.T) {
	t.Parallel()
	b := newBench(t, false, 100)
	var ended atomic.Bool
	o := newClient(t, testserver.URL(t, "sqs")).Options()
	o.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		if ended.Load() {
			return aws.Credentials{}, errors.New("the session has expired")
		}
		return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil //nolint:gosec // of nobody
	})
	log := make(logged, 10_000)
	opts := quick()
	opts.Workers.SettleWithin = time.Second // ElasticMQ does not answer a request for messages of a queue that is deleted
	opts.ReconnectMax, opts.Workers.Log = 100*time.Millisecond, slog.New(slog.NewTextHandler(log, nil))
	b.run(sqs.New(o), b.handler(func(context.Context, *consume.Message, order) error { return nil }, nil), opts)
	ended.Store(true)
	log.wants(t, "the session has expired")
	b.sendOrder(1, "")
	ended.Store(false)
	b.until(consume.Ack)
	b.empty(b.url)
	dead := b.attribute(b.url, "RedrivePolicy")
	if _, err := b.client.DeleteQueue(t.Context(), &sqs.DeleteQueueInput{QueueUrl: &b.url}); err != nil {
		t.Fatal(err)
	}
	log.wants(t, "QueueDoesNotExist")
	b.create(b.queue.Name, map[string]string{"RedrivePolicy": dead})
	b.sendOrder(2, "")
	b.until(consume.Ack)
}

// unusable is a store whose tables are missing, which its coming back would not mend.
type unusable struct{ *memstore.Store }

func (unusable) KeepIdentity(context.Context, driver.KeepIdentityRequest) (res driver.KeepIdentityResult, err error) {
	return res, everonce.ErrSchema
}

// A consumer whose store has no tables ends, and says why.
func TestAStoreWithoutTables(t *testing.T) {
	t.Parallel()
	b := newBench(t, false, 100)
	recv, err := everonce.NewReceiver(unusable{memstore.New(nil)}, everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.sendOrder(1, "")
	c, err := sqsonce.Dial(t.Context(), b.client, b.queue, b.handlerOf(recv, func(context.Context, *consume.Message, order) error { return nil }, nil), quick())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context()); !errors.Is(err, everonce.ErrSchema) {
		t.Errorf("%v, want ErrSchema", err)
	}
}
