// Command frameworks takes messages that other software has published, and writes them as a consumer of everonce sees them: a line
// of JSON each. scripts/record-frameworks calls it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"regexp"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/kafkaonce"
	"github.com/everonce/everonce/consume/rabbitonce"
)

func main() {
	log.SetFlags(0)
	queue := flag.String("queue", "", "the queue of RabbitMQ to take them from")
	topic := flag.String("topic", "", "the topic of Kafka to take them from")
	number := flag.Int("n", 1, "how many there are")
	operation := flag.String("operation", "", "the operation that they ask for")
	as := flag.String("as", "", "how they came to be: first publish, retry, replay")
	forget := flag.String("forget", "", "a queue that a recording has left, to delete with those behind it")
	flag.Parse()
	if *forget != "" {
		if err := remove(*forget); err != nil {
			log.Fatalf("frameworks: %v", err)
		}
		return
	}
	if err := run(*queue, *topic, *number, *operation, *as); err != nil {
		log.Fatalf("frameworks: %v", err)
	}
}

// recording is a line.
type recording struct {
	Operation string           `json:"operation"`
	As        string           `json:"as"`
	Message   *consume.Message `json:"message"`
}

// folder is one of the machine that recorded, in a traceback.
var folder = regexp.MustCompile(`File \\"/[^"]*/`)

// remove deletes a framework's queues.
func remove(queue string) error {
	conn, err := amqp.Dial(os.Getenv("EVERONCE_TEST_RABBITMQ_URL"))
	if err != nil {
		return err
	}
	for _, suffix := range []string{"", ".DQ", ".XQ", ".delay", ".retried", ".dead"} {
		ch, err := conn.Channel()
		if err == nil {
			_, err = ch.QueueDelete(queue+suffix, false, false, false)
		}
		if err != nil {
			return errors.Join(err, conn.Close())
		}
	}
	return conn.Close()
}

type runner interface{ Run(ctx context.Context) error }

func run(queue, topic string, number int, operation, as string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	taken := make(chan *consume.Message, 1000)
	handler, err := consume.NewNatural(consume.NaturalSpec[[]byte]{
		Consumer: "frameworks",
		Key:      func(*consume.Message) (string, error) { return "any", nil },
		Decode:   func(m *consume.Message) ([]byte, error) { return m.Body, nil },
		Handle: func(_ context.Context, m *consume.Message, _ []byte) (bool, error) {
			taken <- m
			return true, nil
		},
	})
	if err != nil {
		return err
	}
	var consumer runner
	if queue != "" {
		consumer, err = rabbitonce.Dial(ctx, os.Getenv("EVERONCE_TEST_RABBITMQ_URL"), rabbitonce.Queue{Name: queue, Topology: rabbitonce.DeclareOwn}, handler, nil)
	} else {
		consumer, err = kafkaonce.Dial(ctx, os.Getenv("EVERONCE_TEST_KAFKA_URL"), kafkaonce.Topic{Name: topic}, handler, nil)
	}
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	running, stop := context.WithCancel(ctx)
	go func() { ended <- consumer.Run(running) }()
	for range number {
		select {
		case m := <-taken:
			m.First = time.Time{}
			m.Body = folder.ReplaceAll(m.Body, []byte(`File \"/app/`))
			if err := json.NewEncoder(os.Stdout).Encode(recording{operation, as, m}); err != nil {
				return err
			}
		case err := <-ended:
			return fmt.Errorf("it ended early: %w", err)
		}
	}
	stop()
	return <-ended
}
