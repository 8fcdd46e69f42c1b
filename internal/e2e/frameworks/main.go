// Command frameworks takes messages that other software has published, and writes them as a consumer of everonce sees
// them: a line of JSON each. scripts/record-frameworks calls it.
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
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/kafkaonce"
	"github.com/everonce/everonce/consume/rabbitonce"
)

func main() {
	log.SetFlags(0)
	queue := flag.String("queue", "", "the queue of RabbitMQ to take them from")
	topic := flag.String("topic", "", "the topic of Kafka to take them from")
	number := flag.Int("n", 1, "how many there are")
	operation := flag.String("operation", "", "the operation that each asks for, separated by commas")
	as := flag.String("as", "", "how each came to be: first publish, retry, replay")
	forget := flag.String("forget", "", "a queue to delete with those behind it, and a topic to make anew")
	declare := flag.String("declare", "", "a queue to declare, because the publisher does not")
	flag.Parse()
	if *declare != "" {
		if err := onChannel(func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(*declare, true, false, false, false, nil)
			return err
		}); err != nil {
			log.Fatalf("frameworks: %v", err)
		}
		return
	}
	if *forget != "" {
		if err := errors.Join(remove(*forget), anew(*forget)); err != nil {
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
	return onChannel(func(ch *amqp.Channel) error {
		for _, suffix := range []string{"", ".DQ", ".XQ", ".delay", ".retried", ".dead"} {
			if _, err := ch.QueueDelete(queue+suffix, false, false, false); err != nil {
				return err
			}
		}
		return nil
	})
}

func onChannel(do func(*amqp.Channel) error) error {
	conn, err := amqp.Dial(os.Getenv("EVERONCE_TEST_RABBITMQ_URL"))
	if err != nil {
		return err
	}
	ch, err := conn.Channel()
	if err == nil {
		err = do(ch)
	}
	return errors.Join(err, conn.Close())
}

// anew makes a topic of Kafka that has no records.
func anew(topic string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(strings.TrimPrefix(os.Getenv("EVERONCE_TEST_KAFKA_URL"), "kafka://"), ",")...))
	if err != nil {
		return err
	}
	defer cl.Close()
	admin := kadm.NewClient(cl)
	if _, err := admin.DeleteTopic(ctx, topic); err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
		return err
	}
	for {
		if _, err = admin.CreateTopic(ctx, 1, 1, nil, topic); !errors.Is(err, kerr.TopicAlreadyExists) {
			return err
		}
	}
}

type runner interface {
	Run(ctx context.Context) error
}

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
		consumer, err = rabbitonce.Dial(ctx, os.Getenv("EVERONCE_TEST_RABBITMQ_URL"), rabbitonce.Queue{Name: queue, Topology: rabbitonce.DeclareOwn}, handler, &rabbitonce.Options{Workers: consume.Workers{Concurrency: 1}})
	} else {
		consumer, err = kafkaonce.Dial(ctx, os.Getenv("EVERONCE_TEST_KAFKA_URL"), kafkaonce.Topic{Name: topic}, handler, &kafkaonce.Options{Workers: consume.Workers{Concurrency: 1}})
	}
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	running, stop := context.WithCancel(ctx)
	defer stop()
	go func() { ended <- consumer.Run(running) }()
	operations, ways := strings.Split(operation, ","), strings.Split(as, ",")
	for i := range number {
		select {
		case m := <-taken:
			m.First = time.Time{}
			m.Body = folder.ReplaceAll(m.Body, []byte(`File \"/app/`))
			if err := json.NewEncoder(os.Stdout).Encode(recording{operations[i], ways[i], m}); err != nil {
				return err
			}
		case err := <-ended:
			return fmt.Errorf("it ended early: %w", err)
		}
	}
	stop()
	return <-ended
}
