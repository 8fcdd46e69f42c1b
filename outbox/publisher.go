package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Publisher sends events to their destination.
type Publisher interface {
	// Publish publishes events, which have one topic, and returns when each of them is stored safely by its receiver, or
	// has failed. It returns one error for each event, in order, or nil if all were published. It must not change the
	// events.
	//
	// Events with the same [Event.Key] are in their order. If one of them has an error, all later ones with the key must
	// have one too; [InOrder] is for publishers that cannot ensure this themselves.
	//
	// An error that wraps [ErrUnavailable] says that the destination does not answer: the try is not counted, and the
	// relay pauses the topic. An error of [everonce.Permanent] sets the event aside at once. Any other error is counted,
	// and the event is tried again; [RetryAfter] sets the least delay.
	//
	// Publish is called concurrently, for different events. Its context ends after [RelayOptions.PublishTimeout].
	Publish(ctx context.Context, events []Event) []error
}

// Destinations is an optional interface of a [Publisher] whose events of one topic go to several destinations, such as
// the webhooks of several customers. A relay then publishes the events of each destination in separate calls, and
// pauses a destination that does not answer while the others go on. An event that failed because its destination did
// not answer waits for half of the time since that destination last answered, at most 10 minutes; an event that was
// held back waits for the rest of the pause. The order of events with the same key holds across destinations. A
// publisher that wraps another one should implement it too.
type Destinations interface {
	// Destination returns the name of the event's destination, or "" if all events of its topic go to the same one. It is
	// kept in memory, and is never logged. It must not block, nor change the event.
	Destination(ctx context.Context, e *Event) string
}

// ErrUnavailable says that a destination takes no events at the moment, whatever their content.
var ErrUnavailable = errors.New("outbox: the destination is unavailable")

// PublisherFunc is a function as a [Publisher].
type PublisherFunc func(ctx context.Context, events []Event) []error

// Publish calls f.
func (f PublisherFunc) Publish(ctx context.Context, events []Event) []error { return f(ctx, events) }

// Route publishes each event by the publisher of its topic, or else by the publisher of the topic "". An event without
// a publisher fails, and is tried again: another version of the relay may have one for its topic.
func Route(topics map[string]Publisher) Publisher { return route(topics) }

type route map[string]Publisher

// to returns the publisher of a topic, or nil.
func (r route) to(topic string) Publisher {
	if p, ok := r[topic]; ok {
		return p
	}
	return r[""]
}

// Publish implements [Publisher].
func (r route) Publish(ctx context.Context, events []Event) []error {
	if len(events) == 0 {
		return nil
	}
	to := r.to(events[0].Topic)
	if to == nil {
		return all(len(events), fmt.Errorf("outbox: no publisher for the topic %q (add it to Route)", events[0].Topic))
	}
	return to.Publish(ctx, events)
}

// Destination implements [Destinations].
func (r route) Destination(ctx context.Context, e *Event) string {
	if to, ok := r.to(e.Topic).(Destinations); ok {
		return to.Destination(ctx, e)
	}
	return ""
}

// One returns a publisher that calls send for each event. Events with different keys, or without a key, are sent at the
// same time, at most parallel of them. Events with the same key are sent one after the other, until one fails.
func One(parallel int, send func(ctx context.Context, e *Event) error) Publisher {
	return PublisherFunc(func(ctx context.Context, events []Event) []error {
		errs := all(len(events), errBehind)
		lines := make(map[string][]int)
		var order [][]int
		for i := range events {
			if key := events[i].Key; key != "" {
				lines[key] = append(lines[key], i)
			} else {
				order = append(order, []int{i})
			}
		}
		for _, line := range lines {
			order = append(order, line)
		}
		slots := make(chan struct{}, max(parallel, 1))
		var sending sync.WaitGroup
		for _, line := range order {
			slots <- struct{}{}
			sending.Go(func() {
				defer func() { <-slots }()
				for _, i := range line {
					errs[i] = errEnded // replaced when send returns
					if errs[i] = safely(func() error { return send(ctx, &events[i]) }); errs[i] != nil {
						return
					}
				}
			})
		}
		sending.Wait()
		return errs
	})
}

// InOrder calls publish for parts of the events in which each key occurs once, and leaves out the events behind one
// with the same key that failed.
func InOrder(ctx context.Context, events []Event, publish func(ctx context.Context, events []Event) []error) []error {
	errs := make([]error, len(events))
	failed := map[string]bool{}
	left := make([]int, len(events))
	for i := range left {
		left[i] = i
	}
	for len(left) > 0 {
		var part []Event
		var at, later []int
		taken := map[string]bool{}
		for _, i := range left {
			key := events[i].Key
			switch {
			case key != "" && failed[key]:
				errs[i] = errBehind
			case key != "" && taken[key]:
				later = append(later, i)
			default:
				taken[key] = true
				part, at = append(part, events[i]), append(at, i)
			}
		}
		if len(part) > 0 {
			for n, err := range errorPerEvent(publish(ctx, part), len(part)) {
				if errs[at[n]] = err; err != nil && part[n].Key != "" {
					failed[part[n].Key] = true
				}
			}
		}
		left = later
	}
	return errs
}

// errBehind says that an event was not sent because one before it, with the same key, failed.
var errBehind = errors.New("outbox: not sent: an event before it with the same key was not published")

// errEnded says that the publisher ended its goroutine instead of returning.
var errEnded = errors.New("outbox: the publisher ended its goroutine")

// errorPerEvent returns one error for each of n events, whatever a publisher returned.
func errorPerEvent(errs []error, n int) []error {
	switch len(errs) {
	case n:
		return errs
	case 0:
		return make([]error, n)
	}
	return all(n, fmt.Errorf("outbox: the publisher returned %d errors for %d events (return one for each, or nil)", len(errs), n))
}

func all(n int, err error) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// safely calls fn, and returns a panic as an error.
func safely(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("outbox: the publisher panicked: %v", p)
		}
	}()
	return fn()
}
