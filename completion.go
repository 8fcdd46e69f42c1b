package everonce

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/retry"
)

// encode makes a saved result of a value. What cannot be kept is elided: the reason is told.
func encode[T any](r *core, c *call, v T, summarize func(T) []byte) (saved driver.SavedResult, elided string) {
	saved = driver.SavedResult{Kind: driver.ResultValue, Codec: c.codecName}
	if summarize != nil {
		if saved.Summary = bytes.Clone(trySummary(v, summarize)); len(saved.Summary) > driver.MaxSummaryLen {
			saved.Summary = nil
		}
	}
	var err error
	if saved.Data, err = marshal(c.codec, v); err != nil {
		return withoutData(saved), "encoding"
	}
	if len(saved.Data) > r.set.MaxResult {
		return withoutData(saved), "size"
	}
	return saved, ""
}

func withoutData(s driver.SavedResult) driver.SavedResult {
	return driver.SavedResult{Kind: driver.ResultElided, Codec: s.Codec, Summary: s.Summary}
}

// marshal encodes by the codec.
func marshal[T any](c Codec, v T) (data []byte, err error) {
	if _, raw := c.(rawCodec); raw {
		switch v := any(v).(type) { // no trip through an interface that would copy v to the heap
		case []byte:
			return append([]byte{}, v...), nil
		case string:
			return []byte(v), nil
		}
	}
	return marshalAny(c, v)
}

// marshalAny is marshal. A codec that panics has not encoded: the effect is done, and a panic here must not leave it unrecorded.
func marshalAny(c Codec, v any) (data []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the codec panicked: %T", p)
		}
	}()
	return c.Marshal(v)
}

func trySummary[T any](v T, summarize func(T) []byte) (b []byte) {
	defer func() {
		if recover() != nil {
			b = nil
		}
	}()
	return summarize(v)
}

// decode makes a value of a saved result. The error wraps ErrUndecodable.
func decode[T any](call *call, saved *driver.SavedResult) (v T, err error) {
	c, ok := codecFor(saved.Codec, call.codec, call.codecName)
	if !ok {
		return v, fmt.Errorf("%w: it was written by the codec %q", ErrUndecodable, saved.Codec)
	}
	if _, raw := c.(rawCodec); raw {
		if _, ok := any(v).([]byte); ok { // no trip to the heap for v
			v, _ = any(append([]byte{}, saved.Data...)).(T)
			return v, nil
		}
	}
	return unmarshal[T](c, saved.Data)
}

func unmarshal[T any](c Codec, data []byte) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			var zero T
			v, err = zero, fmt.Errorf("%w: the codec panicked: %T", ErrUndecodable, p)
		}
	}()
	if err = c.Unmarshal(data, &v); err != nil {
		var zero T
		return zero, fmt.Errorf("%w: %w", ErrUndecodable, err)
	}
	return v, nil
}

// complete saves a result until it is stored or refused, past the lease too, within the completion
// limit. A value that the store refuses by its size is elided. It returns nil, ErrLeaseLost, or what the
// store last said.
func (a *Attempt) complete(saved driver.SavedResult) error {
	req := driver.CompleteRequest{ID: a.id, Token: a.token, Nonce: a.nonce, Result: saved, Lifetime: a.call.lifetime}
	return a.persist(a.ev, a.set.CompletionLimit, func(ctx context.Context) error {
		_, err := a.store.Complete(ctx, req)
		if errors.Is(err, driver.ErrTooLarge) && req.Result.Kind == driver.ResultValue {
			req.Result = withoutData(req.Result)
			if a.ev != nil {
				a.ev.Elided = "store"
			}
			_, err = a.store.Complete(ctx, req)
		}
		return err
	})
}

// release ends the attempt without a result. A release that fails leaves the claim to lapse, which is
// another state than released: so it is tried as long as a completion. To abandon is what lapsing does
// anyway: that is tried shortly. It returns ErrLeaseLost if another has the record; after a try whose
// answer was lost that is not told, for it may have come after the release.
func (a *Attempt) release(state driver.State, class, step string) error {
	limit := a.set.CompletionLimit
	if state == driver.StateAbandoned && step == "" {
		limit = min(limit, a.set.StoreTimeout)
	}
	req := driver.ReleaseRequest{
		ID: a.id, Scope: a.key.Scope, Name: a.key.ID, Token: a.token, Nonce: a.nonce, State: state, ErrorClass: class, Step: a.toSettle(step),
		Lifetime: a.call.lifetime,
	}
	first := true
	return a.persist(a.ev, limit, func(ctx context.Context) error {
		res, err := a.store.Release(ctx, req)
		if err == nil && res.Superseded && first {
			return ErrLeaseLost
		}
		first = false
		return err
	})
}

// toSettle returns the step if somebody has to settle it before the next attempt: none of those that will be asked about again.
func (a *Attempt) toSettle(step string) string {
	if a.takesOver() && a.seenSteps().asksAgain(step) {
		return ""
	}
	return step
}

// persist repeats a write of the attempt until it is done, refused for good, or the limit has passed.
// It does not end with the caller's context. ev, if there is one, counts the repetitions: the event of the
// operation, or that of a step, for steps may run concurrently.
func (a *Attempt) persist(ev *Event, limit time.Duration, write func(context.Context) error) error {
	var err error
	if a.prompt { // a store in memory needs no context of its own
		err = write(context.Background())
	} else {
		started := time.Now()
		one, cancel := a.detached(min(limit, a.set.StoreTimeout)) // the first try needs no second context
		err = write(one)
		cancel()
		limit -= time.Since(started)
	}
	if err == nil || isRefusal(err) {
		return err
	}
	all, cancel := a.detached(limit)
	defer cancel()
	for try := 1; err != nil && !isRefusal(err) && retry.Pause(all, retry.Backoff(try)) == nil; try++ {
		if ev != nil {
			ev.Retries++
		}
		one, cancel := context.WithTimeout(all, a.set.StoreTimeout)
		err = write(one)
		cancel()
	}
	return err
}

// isRefusal reports whether a write's error is the store's last word.
func isRefusal(err error) bool {
	return errors.Is(err, ErrLeaseLost) || errors.Is(err, ErrAttemptEnded) || errors.Is(err, driver.ErrTooLarge) ||
		errors.Is(err, driver.ErrNewerRecord) || errors.Is(err, driver.ErrCorruptRecord)
}
