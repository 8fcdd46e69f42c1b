// Package sqsonce runs a [consume.Consumer] on an SQS queue, standard or FIFO: however often SQS delivers a message,
// it takes effect once.
//
//	c, err := sqsonce.Dial(ctx, sqs.NewFromConfig(cfg), sqsonce.Queue{Name: "orders"}, handler, nil)
//	…
//	err = c.Run(ctx) // until ctx ends; then it drains
//
// A [Publisher] publishes the events of an outbox to SQS; packages snsonce and eventbridgeonce publish to SNS and
// EventBridge, and package lambdaonce runs a consumer in AWS Lambda.
//
// # What is deleted, and when
//
// A message is deleted after its record, or its transaction, is durable, with the handle of its latest receipt. Until
// then its visibility is extended, for up to 12 hours. SQS may deliver a deleted message again; then it is replayed.
// To retry a message, its visibility is set to the delay, in whole seconds. A dead letter is a copy with a note of the
// reason; the message is deleted once SQS has confirmed the copy. If a process is killed in between, or the
// confirmation is lost, there may be two dead letters; a FIFO queue drops the second one within five minutes.
//
// # Retries
//
// SQS counts only receipts: [consume.Message].Retries is ApproximateReceiveCount − 1. So a receipt by a process that
// was killed uses up a retry, as does a receipt while another delivery was being handled ([consume.Defer]). Set a
// maxReceiveCount in the queue's RedrivePolicy that is well above the limit of retries, for example 100. It is the
// safety net below this package: SQS moves a message without giving a reason (the reason is [MaxReceives]).
//
// # Keys
//
// SQS has no message ID of the producer. The attribute "message-id" is [consume.Message].ID; or take a header, which
// is an attribute, or a value of the body. SQS' MessageId ([consume.BrokerID]) is the same for redeliveries, but a
// resend by the producer and a redrive from the dead letters give the message a new one. FIFO's deduplication lasts
// for five minutes.
//
// # FIFO queues
//
// The messages of a group are handled one after the other, whatever Concurrency is. While one is unanswered, or hidden
// for its delay, SQS delivers no other message of its group, so later ones come after it. A dead letter lets them
// pass. A request to a FIFO queue asks for one message: with the first of a group SQS would deliver the next ones too,
// and count a receipt of each of them whenever the first one fails.
package sqsonce
