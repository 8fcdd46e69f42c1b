package oncetest

import (
	"context"
	"fmt"
	"testing"
)

// Which says which of two answers is returned.
type Which uint8

// The answers.
const (
	// Second: the answer to the duplicate, so that a suite's assertions apply to it. The default.
	Second Which = iota
	// First: the answer to the first delivery.
	First
)

// TwiceFuncOptions are the options of [TwiceFunc]. The zero value of each field is its default.
type TwiceFuncOptions[M any] struct {
	// Return says whose error is returned. Default Second.
	Return Which
	// Clone copies a message before each delivery, for handlers that change it. Default: both get the same message.
	Clone func(M) M
	// Same compares what the two deliveries returned, and returns an error that says what is wrong. Default: both
	// nil, or both an error of the same text.
	Same func(first, second error) error
}

// TwiceFunc returns a consumer that passes every message to f twice, the second time after the first has returned, as
// a broker does that did not see the acknowledgement. If the answers differ, the test fails.
func TwiceFunc[M any](tb testing.TB, f func(context.Context, M) error, opts *TwiceFuncOptions[M]) func(context.Context, M) error {
	var o TwiceFuncOptions[M]
	if opts != nil {
		o = *opts
	}
	if o.Clone == nil {
		o.Clone = func(m M) M { return m }
	}
	if o.Same == nil {
		o.Same = sameError
	}
	return func(ctx context.Context, m M) error {
		tb.Helper()
		again := o.Clone(m)
		first := f(ctx, o.Clone(m))
		if ctx.Err() != nil { // no more deliveries will come
			return first
		}
		second := f(ctx, again)
		if err := o.Same(first, second); err != nil {
			tb.Errorf("oncetest: a message was delivered twice: %v", err)
		}
		if o.Return == First {
			return first
		}
		return second
	}
}

func sameError(first, second error) error {
	if fmt.Sprint(first) != fmt.Sprint(second) {
		return fmt.Errorf("the first delivery returned %v, and the second %v", quoted(first), quoted(second))
	}
	return nil
}

func quoted(err error) string {
	if err == nil {
		return "no error"
	}
	return fmt.Sprintf("%q", err.Error())
}
