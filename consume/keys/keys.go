// Package keys has the keys of messages that other people's frameworks publish.
//
//	strategy := keys.Celery()
//	consumer, err := consume.New(receiver, consume.Spec[Task]{
//		Consumer: "billing", Key: strategy.Key, Fingerprint: strategy.Fingerprint,
//		…
//	})
//
// Each strategy is tested with messages that the framework has published at the version which its comment names: the first
// publish, the framework's own retry, and its dead letter.
package keys

import "github.com/everonce/everonce/consume"

// Strategy tells one operation of a framework from another, for the fields of the same names of [consume.Spec],
// [consume.TxSpec] and the others.
type Strategy struct {
	// Key is the same whenever the framework publishes the operation again.
	Key consume.Key
	// Fingerprint leaves out what the framework changes when it does.
	Fingerprint consume.Fingerprint
}

// Celery is for tasks of Celery 5.7 with the JSON serializer and message protocol 2: the headers id and task. Task.retry keeps
// both. Task.replace keeps the id and runs another task, so the id alone would merge two operations.
func Celery() Strategy {
	return Strategy{Key: consume.Composite("celery", consume.Header("id"), consume.Header("task"))}
}

// Dramatiq is for actors of Dramatiq 2.2 with the JSON encoder: the member message_id of the body. A retry keeps it, and changes
// options and queue_name. Send the same Message again, not actor.send, which makes a new message_id.
func Dramatiq() Strategy {
	return Strategy{
		Key:         consume.Composite("dramatiq", consume.JSONPointer("/message_id")),
		Fingerprint: consume.Fingerprint{JSONOnly: []string{"/actor_name", "/args", "/kwargs"}},
	}
}

// Taskiq is for tasks of taskiq 0.13 with taskiq-aio-pika 0.6 and the JSON formatter: the header task_id. A retry keeps it, and
// changes the labels. The AMQP message-id is new at each publish. Give a task that you send again the task ID that it had.
func Taskiq() Strategy {
	return Strategy{
		Key:         consume.Composite("taskiq", consume.Header("task_id")),
		Fingerprint: consume.Fingerprint{JSONOnly: []string{"/task_name", "/args", "/kwargs"}},
	}
}
