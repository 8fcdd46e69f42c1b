package everonce

import (
	"context"
	"slices"
)

// JoinObservers returns one observer that tells all of the given ones: of logs and of metrics, say. Their Starts are called in order, each
// with the context that the one before it returned; their Ends in reverse order, each with the context that its own Start returned. If one
// panics, the others are told all the same. A nil one is left out; if no other is left, the result is nil.
func JoinObservers(observers ...Observer) Observer {
	told := slices.DeleteFunc(slices.Clone(observers), func(o Observer) bool { return isNil(o) })
	switch len(told) {
	case 0:
		return nil
	case 1:
		return told[0]
	}
	return &joinedObservers{told}
}

type joinedObservers struct{ each []Observer }

func (j *joinedObservers) Start(ctx context.Context, op Op) context.Context {
	started := &startedContext{Context: ctx, by: j, each: make([]context.Context, len(j.each))}
	for i, o := range j.each {
		started.Context = tellStart(started.Context, o, op)
		started.each[i] = started.Context
	}
	return started
}

func (j *joinedObservers) End(ctx context.Context, ev Event) {
	started, ok := ctx.Value(startedKey{j}).(*startedContext)
	for i, o := range slices.Backward(j.each) {
		if ok {
			ctx = started.each[i]
		}
		tellEnd(ctx, o, ev)
	}
}

// startedContext is what the Start of joined observers returns: the context of the last of them, which knows those of all.
type startedContext struct {
	context.Context
	by   *joinedObservers
	each []context.Context
}

type startedKey struct{ by *joinedObservers }

func (c *startedContext) Value(key any) any {
	if key == (startedKey{c.by}) {
		return c
	}
	return c.Context.Value(key)
}
