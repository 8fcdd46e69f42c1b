package enginetest

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

// tracer is a recorder whose calls belong to traces: trace is the next one's.
type tracer struct {
	recorder
	trace string
}

type (
	traceKey struct{}
	itemKey  struct{}
)

func (r *tracer) Start(ctx context.Context, op everonce.Op) context.Context {
	trace := r.trace
	if its, ok := ctx.Value(itemKey{}).(string); ok {
		trace = its
	}
	return context.WithValue(r.recorder.Start(ctx, op), traceKey{}, trace)
}

func (r *tracer) Trace(ctx context.Context) string {
	trace, _ := ctx.Value(traceKey{}).(string)
	return trace
}

// The observation of a duplicate has the trace of the attempt that left the record, and how long ago that was;
// after a takeover it has the trace that broke off. Neither changes the record's owner.
func TestObserverGetsTheTraceOfTheEarlierAttempt(t *testing.T) {
	for name, s := range map[string]everonce.Store{"by a claim": newFaultStore(), "recalled": memstore.New(nil)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rec := &tracer{trace: "t-1"}
				r := newReceiver(t, s, everonce.Reexecute, &everonce.Options{Observer: everonce.JoinObservers(&recorder{}, rec), Owner: "me, here"})
				do(t, r, keyOf("x"), returns("", errWork), everonce.Failed, errWork)
				rec.trace = "t-2"
				do(t, r, keyOf("x"), returns("v", nil), everonce.Executed, nil)
				checkEqual(t, "Owner", recordIn(t, s, keyOf("x")).Owner, "me, here t-2")
				time.Sleep(3 * time.Hour)
				rec.trace = "t-3"
				do(t, r, keyOf("x"), never(t), everonce.Replayed, nil)
				events := rec.take(t)
				checkEqual(t, "Met of the first", events[0].Met, "")
				checkEqual(t, "Met of the second", events[1].Met, "t-1")
				checkEqual(t, "Since of the second", events[1].Since, time.Duration(0))
				checkEqual(t, "Met of the third", events[2].Met, "t-2")
				checkEqual(t, "Since of the third", events[2].Since, 3*time.Hour)
			})
		})
	}
}

// In transactional mode it is the same, and what has no room is left out.
func TestObserverGetsTheTraceOfTheEarlierTransaction(t *testing.T) {
	rec, s := &tracer{trace: "t-1"}, newMapStore()
	x := newTxReceiver(t, s, &everonce.Options{Observer: rec, Owner: "me"})
	transact(t, x, s, keyOf("x"), func(context.Context, *mapTx) (int, error) { return 1, nil }, everonce.Executed, nil)
	for _, way := range [][]everonce.CallOption{nil, {everonce.Optimistic()}} {
		transact(t, x, s, keyOf("x"), func(context.Context, *mapTx) (int, error) { return 0, errors.New("it ran again") }, everonce.Replayed, nil, way...)
	}
	for _, ev := range rec.take(t)[1:] {
		checkEqual(t, "Met", ev.Met, "t-1")
	}
	for _, trace := range []string{strings.Repeat("t", 126), "two words"} {
		rec.trace = trace
		r := newReceiver(t, s, everonce.Refuse, &everonce.Options{Observer: rec, Owner: "me"})
		do(t, r, keyOf(trace), returns("", nil), everonce.Executed, nil)
		checkEqual(t, "Owner", recordIn(t, s, keyOf(trace)).Owner, "me")
	}
}

// The items of a batch have separate traces, taken from their contexts: alone or together, done or repeated.
func TestObserverGetsTheTraceOfTheEarlierItem(t *testing.T) {
	for _, names := range [][]string{{"a"}, {"a", "b", "c"}} {
		rec := &tracer{trace: "the batch's"}
		x := newTxReceiver(t, newMapStore(), &everonce.Options{Observer: rec})
		for again := range 2 {
			items := make([]everonce.BatchItem, len(names))
			for i, name := range names {
				items[i] = everonce.BatchItem{Key: keyOf(name), Context: context.WithValue(t.Context(), itemKey{}, strconv.Itoa(again)+"-"+name)}
			}
			_, err := everonce.TransactBatch(t.Context(), x, items, everonce.EachItem(func(context.Context, *mapTx, int) (int, error) { return 1, nil }))
			checkEqual(t, "error", err, nil)
			for i, ev := range rec.take(t) {
				if again > 0 {
					checkEqual(t, "Met", ev.Met, "0-"+names[i])
				}
			}
		}
	}
}
