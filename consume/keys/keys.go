// Package keys has the keys of messages that other frameworks publish.
//
//	strategy := keys.Celery()
//	consumer, err := consume.New(receiver, consume.Spec[Task]{
//		Consumer: "billing", Key: strategy.Key, Compare: strategy.Compare,
//		…
//	})
//
// Each strategy is tested with messages that the framework published, at the version that its comment names: the first
// publish, the framework's own retry, and its dead letter. [MassTransit] and [NServiceBus] follow their documentation
// instead.
package keys

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/everonce/everonce/consume"
)

// Strategy identifies an operation of a framework, for the fields of the same names of [consume.Spec],
// [consume.TxSpec] and [consume.NaturalSpec].
type Strategy struct {
	// Key is the same whenever the framework publishes the operation again.
	Key consume.Key
	// Compare leaves out what the framework changes when it publishes again.
	Compare consume.Compare
}

// Celery is for tasks of Celery 5.7 with the JSON serializer and message protocol 2. It reads the headers id and task.
// Task.retry keeps both. Task.replace keeps the id and runs another task, so the id alone would merge two operations.
func Celery() Strategy {
	return Strategy{Key: consume.Composite("celery", consume.Header("id"), consume.Header("task"))}
}

// Dramatiq is for actors of Dramatiq 2.2 with the JSON encoder. It reads the body's member message_id. A retry keeps
// it, and changes options and queue_name. Send the same Message again, not actor.send, which makes a new message_id.
func Dramatiq() Strategy {
	return Strategy{
		Key:     consume.Composite("dramatiq", consume.JSONPointer("/message_id")),
		Compare: consume.Compare{JSONOnly: []string{"/actor_name", "/args", "/kwargs"}},
	}
}

// Taskiq is for tasks of taskiq 0.13 with taskiq-aio-pika 0.6 and the JSON formatter. It reads the header task_id. A
// retry keeps it, and changes the labels. The AMQP message-id is new at each publish. When you send a task again, give
// it the same task ID.
func Taskiq() Strategy {
	return Strategy{
		Key:     consume.Composite("taskiq", consume.Header("task_id")),
		Compare: consume.Compare{JSONOnly: []string{"/task_name", "/args", "/kwargs"}},
	}
}

// SpringAMQP is for messages of Spring AMQP 4.1 whose message ID the sender sets, in a MessagePostProcessor: by
// default Spring sets no ID, and with createMessageIds it makes a new one for each conversion. A
// RepublishMessageRecoverer keeps ID and body.
func SpringAMQP() Strategy { return Strategy{Key: consume.ProducerID()} }

// SpringKafka is for records of Spring for Apache Kafka 4.1 with a header that the sender sets, such as "ce_id": by
// default Spring sets none. A DeadLetterPublishingRecoverer keeps headers, key and body. Its Key is nil if header is
// empty.
func SpringKafka(header string) Strategy { return Strategy{Key: consume.Header(header)} }

// Debezium is for the outbox event router of Debezium 3.6. It reads its default header id, the ID of the row. The
// connector publishes a row again after a restart.
func Debezium() Strategy {
	return Strategy{Key: consume.Composite("debezium", consume.Header("id"))}
}

// Watermill is for messages of Watermill 1.5 with watermill-amqp 3.0 or watermill-kafka 3.0 and their default
// marshalers. It uses the message's UUID, which the middlewares Retry and PoisonQueue keep. Send the same Message
// again, not a new one.
func Watermill() Strategy {
	return Strategy{Key: consume.Composite("watermill", consume.Header("_watermill_message_uuid"))}
}

// NestJS is for the microservices of NestJS 11 on RabbitMQ. It reads the pattern and a member of the data, a JSON
// pointer like "/id", since an event has no ID, and a request has a new one for each send. Its Key is nil if pointer
// does not begin with "/". Over Kafka the body is the data alone: use [consume.JSONPointer] there.
func NestJS(pointer string) Strategy {
	if !strings.HasPrefix(pointer, "/") {
		return Strategy{}
	}
	return Strategy{
		Key:     consume.Composite("nestjs", pattern, consume.JSONPointer("/data"+pointer)),
		Compare: consume.Compare{JSONOnly: []string{"/pattern", "/data"}},
	}
}

// pattern returns the pattern of a NestJS message: a string, or the canonical form of an object like {"cmd":"sum"}.
func pattern(m *consume.Message) (string, error) {
	if text, err := consume.JSONPointer("/pattern")(m); err == nil {
		return text, nil
	}
	var body struct {
		Pattern jsontext.Value `json:"pattern"`
	}
	if err := json.Unmarshal(m.Body, &body); err != nil || body.Pattern.Kind() != jsontext.KindBeginObject {
		return "", fmt.Errorf("%w: the body has no pattern", consume.ErrNoKey)
	}
	if err := body.Pattern.Canonicalize(); err != nil {
		return "", fmt.Errorf("%w: the pattern is not one JSON object", consume.ErrNoKey)
	}
	return string(body.Pattern), nil
}

// CloudEvents is [consume.CloudEvent]: source and id of an event in all bindings except MQTT. An event has a different
// body in structured mode than in binary mode, so a resend in the other mode is a mismatch.
func CloudEvents() Strategy { return Strategy{Key: consume.CloudEvent()} }

// MassTransit is for the envelope of MassTransit 8, by its documentation. It reads the body's member messageId, which
// retries and the error queue keep. The envelope's headers, sentTime and host may change.
func MassTransit() Strategy {
	return Strategy{
		Key:     consume.Composite("masstransit", consume.JSONPointer("/messageId")),
		Compare: consume.Compare{JSONOnly: []string{"/messageType", "/message"}},
	}
}

// NServiceBus is for messages of NServiceBus 9 on RabbitMQ, by its documentation. It reads the header
// NServiceBus.MessageId, which retries and the error queue keep.
func NServiceBus() Strategy {
	return Strategy{Key: consume.Composite("nservicebus", consume.Header("NServiceBus.MessageId"))}
}
