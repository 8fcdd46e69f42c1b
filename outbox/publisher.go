package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Publisher sends events to where they go.
type Publisher interface {
	// Publish publishes events, which have one topic, and returns when each is safe with the receiver, or is not. It returns
	// an error for each event, in their order, or nil if all were published. It must not change them.
	//
	// Events with the same [Event.Key] stand in their order. If one of them has an error, those behind it must have one
	// too: [InOrder] is for publishers that cannot promise that by themselves.
	//
	// An error that wraps [ErrUnavailable] says that the destination does not answer: it does not count, and the relay
	// pauses the topic. One of [everonce.Permanent] sets the event aside at once. Any other is counted, and the event is
	// tried again; [RetryAfter] says when at the earliest.
	//
	// Publish is called concurrently, for different events. Its context ends after [RelayOptions.PublishTimeout].
	Publish(ctx context.Context, events []Event) []error
}

// Destinations is an optional power of a [Publisher] by which events of one topic go to several places, as to the webhooks of several
// customers. A relay then calls it for the events of each destination apart, and pauses a destination that does not answer while the
// others go on. An event that failed because its destination did not answer waits for half of the time for which that has not answered,
// 10 minutes at most; one that was held waits for the rest of the pause. The order of events with the same key holds across
// destinations. A publisher that wraps another one should pass it on.
type Destinations interface {
	// Destination names where an event goes; "" if all events of its topic go to the same place. It is kept in memory, and in no log. It
	// must not block, nor change the event.
	Destination(ctx context.Context, e *Event) string
}

// ErrUnavailable says that a destination takes no events at the moment, whatever they are.
var ErrUnavailable = errors.New("outbox: the destination is unavailable")

// PublisherFunc is a function as a [Publisher].
type PublisherFunc func(ctx context.Context, events []Event) []error

// Publish calls f.
func (f PublisherFunc) Publish(ctx context.Context, events []Event) []error { return f(ctx, events) }

// Route publishes each event by the publisher of its topic, or by that of the topic "" if it has none of its own. An event
// for which there is none has an error, and is tried again: another version of the relay may know its topic.
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

// One makes a publisher of a function that sends one event. Events with different keys, or none, are sent at the same
// time, at most parallel of them; those with the same key one after the other, up to the first that fails.
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
					errs[i] = errEnded // unless it returns
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

// InOrder calls publish for parts of the events in which no key occurs twice, and leaves out what is behind an event that
// failed.
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
			for n, err := range checked(publish(ctx, part), len(part)) {
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

// errEnded says that the publisher did not return.
var errEnded = errors.New("outbox: the publisher ended its goroutine")

// checked returns an error for each event, whatever a publisher returned.
func checked(errs []error, n int) []error {
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
