package rabbitonce

import (
	"context"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"
)

// pipelined is the largest number of unconfirmed messages of a channel. The channel buffers as many returned messages.
const pipelined = 128

// parcel is a message with its destination.
type parcel struct {
	to  Address
	msg amqp.Publishing // its ID is unique: returned messages are found by it
}

// publishAll publishes messages, many at a time, and returns an error for each that the broker has not confirmed or
// has returned. They reach the broker in their order, but one may be confirmed although an earlier one was not.
func (p *publisher) publishAll(ctx context.Context, parcels []parcel) []error {
	errs := make([]error, len(parcels))
	for at := 0; at < len(parcels); at += pipelined {
		end := min(at+pipelined, len(parcels))
		p.publishPart(ctx, parcels[at:end], errs[at:end])
	}
	return errs
}

func (p *publisher) publishPart(ctx context.Context, parcels []parcel, errs []error) {
	c, err := p.channel(ctx)
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
		return
	}
	err = c.publishAll(ctx, parcels, errs)
	p.release(ctx, c, err)
	if len(parcels) == 1 || !closesChannel(err) {
		return
	}
	// The broker closes the channel for one of them and does not say which. It then has unconfirmed messages twice.
	for i, forbidden := 0, 0; i < len(parcels) && forbidden < maxForbidden; i++ {
		if !errors.Is(errs[i], err) {
			continue
		}
		errs[i] = nil
		p.publishPart(ctx, parcels[i:i+1], errs[i:i+1])
		if e, ok := errors.AsType[*amqp.Error](errs[i]); ok && e.Code == amqp.AccessRefused {
			forbidden++
		}
	}
}

// maxForbidden is how many messages are tried one by one that this user may not publish: each costs a connection.
const maxForbidden = 3

// closesChannel reports whether an error is the broker's refusal of one message.
func closesChannel(err error) bool {
	e, ok := errors.AsType[*amqp.Error](err)
	return ok && e.Server && (e.Code == amqp.NotFound || e.Code == amqp.PreconditionFailed || e.Code == amqp.AccessRefused)
}

// publishAll returns the error, if any, after which the channel cannot be used. It is also the error of each message
// without another result.
func (c *publishing) publishAll(ctx context.Context, parcels []parcel, errs []error) (broken error) {
	confirms := make([]*amqp.DeferredConfirmation, len(parcels))
	for i := range parcels {
		if size := sizeOf(parcels[i].msg.Headers); size > c.room {
			errs[i] = fmt.Errorf("%w: its headers take %d bytes, and a frame has room for %d", errTooLarge, size, c.room)
			continue
		}
		if confirms[i], broken = c.send(ctx, parcels[i].to.Exchange, parcels[i].to.RoutingKey, parcels[i].msg); broken != nil {
			break
		}
	}
	for _, confirm := range confirms {
		if confirm == nil {
			continue
		}
		if err := c.wait(ctx, confirm); err != nil {
			broken = err
			break
		}
	}
	if c.ch.IsClosed() {
		broken = c.refusal()
	}
	returned := c.returned()
	for i, confirm := range confirms {
		to := parcels[i].to
		switch {
		case errs[i] != nil:
		case confirm == nil:
			errs[i] = broken
		case returned[parcels[i].msg.MessageId] != "":
			errs[i] = fmt.Errorf("%w: exchange %q, routing key %q: %s", ErrUnroutable, to.Exchange, to.RoutingKey, returned[parcels[i].msg.MessageId])
		case confirm.Acked():
		case broken != nil:
			errs[i] = broken
		default:
			errs[i] = fmt.Errorf("rabbitonce: the broker does not take a message: the queue is full: exchange %q, routing key %q", to.Exchange, to.RoutingKey)
		}
	}
	return broken
}

// returned returns why messages came back, by ID.
func (c *publishing) returned() map[string]string {
	why := map[string]string{}
	for {
		select {
		case r, ok := <-c.returns: // a return comes before its confirm, which is still positive
			if !ok {
				return why
			}
			why[r.MessageId] = r.ReplyText
		default:
			return why
		}
	}
}
