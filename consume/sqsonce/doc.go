// Package sqsonce runs a [consume.Consumer] on an SQS queue, standard or FIFO: however often SQS delivers a message, it takes
// effect once.
//
//	c, err := sqsonce.Dial(ctx, sqs.NewFromConfig(cfg), sqsonce.Queue{Name: "orders"}, handler, nil)
//	…
//	err = c.Run(ctx) // until ctx ends; then it drains
//
// A [Publisher] publishes the events of an outbox to SQS; packages snsonce and eventbridgeonce publish to SNS and EventBridge, and
// package lambdaonce runs a consumer in AWS Lambda.
//
// # What is deleted, and when
//
// A message is deleted after its record, or its transaction, is durable, with the handle of its latest receipt. Until then
// its visibility is extended, for up to 12 hours. A deleted message can come again, SQS says; then it is replayed. To retry a
// message, its visibility is set to the delay, in whole seconds. A dead letter is a copy with a note of why; the message is
// deleted once SQS has confirmed it. If a process is killed in between, or the confirmation is lost, the letter may be
// there twice; a FIFO queue drops the second one within five minutes.
//
// # Retries
//
// SQS counts receipts, and nothing else: [consume.Message].Retries is ApproximateReceiveCount − 1. So a receipt by a process that was
// killed counts, and so does one that came while another delivery was handled ([consume.Defer]). Set a maxReceiveCount in the
// queue's RedrivePolicy that is well above the limit of retries, 100 say: it is the net below this package, and SQS moves a message by it
// without a word of why (the reason is [MaxReceives]).
//
// # Keys
//
// SQS has no message ID of its producer. An attribute "message-id" is [consume.Message].ID; or take a header, which is an attribute, or
// a value of the body. The MessageId of SQS ([consume.BrokerID]) stays over redeliveries, but a producer that sends again,
// and a redrive from the dead letters, give the message another one. FIFO's deduplication forgets after five minutes.
//
// # FIFO queues
//
// The messages of a group are handled one after the other, whatever Concurrency is. While one is in hand, or hidden for its
// delay, SQS gives out no other of its group, so those behind it come after it. What becomes a dead letter lets them pass.
// A request for messages of a FIFO queue asks for one: with the first of a group SQS would hand out those behind it, and
// count a receipt of each of them whenever the first one fails.
package sqsonce
