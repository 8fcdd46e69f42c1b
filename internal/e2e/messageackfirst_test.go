package e2e

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const ackFirstWorkers = 8

// ackFirst is the mistake: it loses the messages that it holds when it ends, and those that it cannot save.
func (w *messageWorker) ackFirst(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := w.ackFirstSession(ctx); err != nil {
			slog.Warn("ack-first: the connection is lost, or was not made", "error", err)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return nil
}

// ackFirstSession consumes until the connection is lost, or ctx ends.
func (w *messageWorker) ackFirstSession(ctx context.Context) error {
	conn, err := dialBroker(w.spec.Broker)
	if err != nil {
		return err
	}
	defer conn.cut()
	unasked := conn.bound()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.Qos(2*ackFirstWorkers, 0, false); err != nil {
		return err
	}
	deliveries, err := ch.Consume(rabbitQueue(&w.spec, wayAckFirst).Name, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	unasked()
	stop := context.AfterFunc(ctx, conn.cut)
	defer stop()
	var workers sync.WaitGroup
	for range ackFirstWorkers {
		workers.Go(func() {
			for d := range deliveries {
				if err := w.ackThenSave(d); err != nil {
					slog.Warn("ack-first: a message was not handled", "error", err)
				}
			}
		})
	}
	workers.Wait()
	return nil
}

func (w *messageWorker) ackThenSave(d amqp.Delivery) error {
	var v operation
	if err := json.Unmarshal(d.Body, &v); err != nil {
		return err
	}
	if _, err := w.tell(phaseReceived, wayAckFirst, v.Op, flag("again", d.Redelivered)); err != nil {
		return err
	}
	if err := d.Ack(false); err != nil {
		return w.ended(v.Op, "gone", err)
	}
	if err := w.at(phaseWorking, wayAckFirst, v.Op); err != nil {
		return err
	}
	if _, err := w.pool.Exec(context.Background(), insertEffect, wayAckFirst, v.Op); err != nil {
		return w.ended(v.Op, "lost", err)
	}
	if err := w.at(phaseWorked, wayAckFirst, v.Op); err != nil {
		return err
	}
	return w.ended(v.Op, "executed", nil)
}

// ended tells the referee that the message is out of hand.
func (w *messageWorker) ended(op int, outcome string, err error) error {
	more := flag("ack", err == nil)
	more.Set("outcome", outcome)
	if _, told := w.tell(phaseRecorded, wayAckFirst, op, more); told != nil {
		return told
	}
	return err
}
