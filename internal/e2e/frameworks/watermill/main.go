//go:build ignore

// A Watermill publisher, to RabbitMQ and Kafka. scripts/record-frameworks runs it: watermill ID, and for the poison
// queue: watermill ID poison.
package main

import (
	"log"
	"os"
	"strings"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
)

func main() {
	rabbit, err := amqp.NewPublisher(amqp.NewDurableQueueConfig(os.Getenv("EVERONCE_TEST_RABBITMQ_URL")), watermill.NopLogger{})
	if err != nil {
		log.Fatal(err)
	}
	brokers := strings.Split(strings.TrimPrefix(os.Getenv("EVERONCE_TEST_KAFKA_URL"), "kafka://"), ",")
	config := kafka.DefaultSaramaSyncPublisherConfig()
	config.Version = sarama.V2_8_0_0
	log0, err := kafka.NewPublisher(kafka.PublisherConfig{Brokers: brokers, Marshaler: kafka.DefaultMarshaler{}, OverwriteSaramaConfig: config}, watermill.NopLogger{})
	if err != nil {
		log.Fatal(err)
	}
	for _, to := range []message.Publisher{rabbit, log0} {
		if len(os.Args) > 2 { // the poison queue's middleware publishes the message that failed
			poison, err := middleware.PoisonQueue(to, "fw.watermill")
			if err != nil {
				log.Fatal(err)
			}
			handler := poison(func(*message.Message) ([]*message.Message, error) { return nil, os.ErrDeadlineExceeded })
			if _, err := handler(newMessage()); err != nil {
				log.Fatal(err)
			}
			continue
		}
		if err := to.Publish("fw.watermill", newMessage()); err != nil {
			log.Fatal(err)
		}
	}
	if err := rabbit.Close(); err != nil {
		log.Fatal(err)
	}
	if err := log0.Close(); err != nil {
		log.Fatal(err)
	}
}

func newMessage() *message.Message {
	return message.NewMessage(os.Args[1], []byte(`{"order":"order-1","cents":1200}`))
}
