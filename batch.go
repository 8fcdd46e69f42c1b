package everonce

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/everonce/everonce/driver"
)

// BatchItem names one operation of a batch.
type BatchItem struct {
	Key Key
	// Fingerprint is compared when the key is used again, unless it is zero.
	Fingerprint Fingerprint
	// Context, if set, is passed to the observer's Start, so that the item's trace can continue the trace of its
	// message. Default: the context of the call.
	Context context.Context
}

// BatchResult is what [Transact] would have returned for one operation of a batch.
type BatchResult[T any] struct {
	Result[T]
	Err error
}

// BatchWork performs the operations of a batch that are still to be done: the items with the indexes todo. It returns
// their values in that order, or an error, which undoes all its writes. See [EachItem].
type BatchWork[T, Tx any] func(ctx context.Context, tx Tx, todo []int) ([]T, error)

// TransactBatch is [Transact] for many operations in one transaction: one statement claims all keys, and one, sent with
// the commit, writes all records; on a store without [driver.TxBatch] each is a statement. The results are in the order
// of the items. An error of the call itself means that nothing ran: it wraps [ErrInvalidArgument] or
// [ErrIdentity], or the store failed at its first use.
//
// A failing operation does not fail the others: the transaction rolls back, and the work is rerun in parts, with the
// failing item alone if [EachItem] identifies it, otherwise in halves. So the work may run several times for one item,
// but takes effect once; it must have no effects outside tx.
//
// An operation that another attempt holds is [ErrInProgress], without a wait. Batches claim in one order, so they never
// deadlock on their keys. A key that is in the batch twice is done once, and the second item gets a copy of the result.
//
// In the work [AttemptFrom] finds no attempt: use [TxReceiver.DownstreamKey]. The observer sees each item as a
// Transact. Options, for all items: WithLifetime, WithSummary, WithCodec, Unobserved. At most [driver.MaxBatch] items.
func TransactBatch[T, Tx any](ctx context.Context, t *TxReceiver[Tx], items []BatchItem, work BatchWork[T, Tx], opts ...CallOption) ([]BatchResult[T], error) {
	if t == nil || work == nil {
		return nil, &Error{Outcome: Invalid, Sentinel: fmt.Errorf("%w: the receiver or the work is nil", ErrInvalidArgument)}
	}
	if len(items) > driver.MaxBatch {
		return nil, &Error{Outcome: Invalid, Sentinel: fmt.Errorf("%w: a batch of %d operations, the limit is %d", ErrInvalidArgument, len(items), driver.MaxBatch)}
	}
	given, _, err := t.callFor(opts, batchOptions)
	if err != nil {
		return nil, &Error{Outcome: Invalid, Sentinel: err}
	}
	c := *given
	c.wait = 0 // no item waits for another's transaction, even if it runs alone
	summarize, err := summaryOf[T](&c)
	if err != nil {
		return nil, &Error{Outcome: Invalid, Sentinel: err}
	}
	whole := operation{core: &t.core, call: &c, place: placeOf(ctx)}
	if err := whole.ready(ctx); err != nil {
		return nil, err
	}
	b := &batch[T, Tx]{whole: whole, t: t, work: work, summarize: summarize, nonce: driver.NewNonce()}
	b.prepare(items)
	if whole.observed() {
		observations := b.observe(ctx, items)
		defer func() {
			for i := range observations {
				if observations[i].ev != nil {
					observations[i].end(b.results[i].Outcome, b.results[i].Err)
				}
			}
		}()
	}
	defer func() { // after a panic of the work too
		for i := range b.ops {
			b.ops[i].warn(ctx, b.results[i].Outcome, b.results[i].Attempt, b.results[i].Err)
		}
	}()
	b.run(ctx, b.todo())
	b.answerSeconds(ctx)
	return b.results, nil
}

// EachItem makes a [BatchWork] from work that performs one operation, the item with the index i.
func EachItem[T, Tx any](work func(ctx context.Context, tx Tx, i int) (T, error)) BatchWork[T, Tx] {
	if work == nil {
		return nil
	}
	return func(ctx context.Context, tx Tx, todo []int) ([]T, error) {
		values := make([]T, len(todo))
		for k, i := range todo {
			v, err := work(ctx, tx, i)
			if err != nil {
				return nil, &itemError{i, err}
			}
			values[k] = v
		}
		return values, nil
	}
}

// itemError says which item's work failed.
type itemError struct {
	item int
	err  error
}

func (e *itemError) Error() string { return e.err.Error() }
func (e *itemError) Unwrap() error { return e.err }

// batch is the state of one TransactBatch.
type batch[T, Tx any] struct {
	whole     operation // the batch as a whole, without a key
	t         *TxReceiver[Tx]
	work      BatchWork[T, Tx]
	summarize func(T) []byte

	nonce   driver.Nonce // shared by all items; each record has it
	ops     []operation
	first   []int // the first item with the same key; the item itself, mostly
	results []BatchResult[T]
	elided  []bool // set for items whose result the store elided in the item's own transaction; may be nil
}

// prepare makes an operation of each item. An invalid item gets its error as its result.
func (b *batch[T, Tx]) prepare(items []BatchItem) {
	n := len(items)
	b.ops = make([]operation, n)
	b.results, b.first = make([]BatchResult[T], n), make([]int, n)
	order := make([]int, 0, n)
	for i, item := range items {
		b.first[i] = i
		op := &b.ops[i]
		*op = b.whole
		op.key, op.fingerprint = item.Key, driver.Fingerprint(item.Fingerprint)
		err := item.Key.Validate()
		if err == nil {
			err = validateFingerprint(op.fingerprint)
		}
		if err != nil {
			b.answer(i, Result[T]{Outcome: Invalid}, &Error{Outcome: Invalid, Sentinel: err})
			continue
		}
		op.id = op.recordID(op.key)
		if err := op.checkPlace(nil); err != nil {
			b.answer(i, Result[T]{Outcome: Invalid}, err)
			continue
		}
		order = append(order, i)
	}
	slices.SortStableFunc(order, b.byID)
	for k := 1; k < len(order); k++ {
		if before := order[k-1]; b.ops[before].id == b.ops[order[k]].id {
			b.first[order[k]] = b.first[before]
		}
	}
}

func (b *batch[T, Tx]) byID(i, j int) int { return bytes.Compare(b.ops[i].id[:], b.ops[j].id[:]) }

func (b *batch[T, Tx]) observe(ctx context.Context, items []BatchItem) []observation {
	observations := make([]observation, len(b.ops))
	for i := range b.ops {
		if b.results[i].Outcome != 0 { // an invalid key names no operation
			continue
		}
		op := &b.ops[i]
		observations[i] = op.observe(cmp.Or(items[i].Context, ctx), opTransact, "")
		op.trace = op.traceIn(observations[i].ctx)
		observations[i].ev.Outcome, observations[i].ev.Err = Failed, errUnwound // if the work does not return
	}
	return observations
}

// todo returns the indexes of the items to claim, in order.
func (b *batch[T, Tx]) todo() []int {
	todo := make([]int, 0, len(b.ops))
	for i := range b.ops {
		if b.results[i].Outcome == 0 && b.first[i] == i {
			todo = append(todo, i)
		}
	}
	return todo
}

func (b *batch[T, Tx]) answer(i int, res Result[T], err error) {
	b.results[i] = BatchResult[T]{Result: res, Err: err}
}

// run answers the items of a part.
func (b *batch[T, Tx]) run(ctx context.Context, part []int) {
	switch len(part) {
	case 0:
	case 1:
		b.alone(ctx, part[0])
	default:
		g := &group[T, Tx]{batch: b, runs: b.t.runs(), part: part}
		for _, smaller := range g.loop(ctx) {
			b.run(ctx, smaller)
		}
	}
}

// alone runs one operation as [Transact] does.
func (b *batch[T, Tx]) alone(ctx context.Context, i int) {
	run := &transaction[T, Tx]{operation: b.ops[i], runs: b.t.runs(), summarize: b.summarize}
	run.work = func(ctx context.Context, tx Tx) (v T, err error) {
		// Hide the attempt from the work: what AttemptFrom finds must not depend on how the batch was split.
		at := *placeOf(ctx)
		at.attempt = &Attempt{operation: b.ops[i]}
		values, err := b.work(&placedContext{Context: ctx, place: &at}, tx, []int{i})
		if err == nil {
			err = checkCount(values, 1)
		}
		if err != nil {
			if e, ok := err.(*itemError); ok { //nolint:errorlint // EachItem's own, not wrapped
				err = e.err
			}
			return v, err
		}
		return values[0], nil
	}
	res, err := run.loop(ctx)
	b.answer(i, res, err)
	if run.elide {
		if b.elided == nil {
			b.elided = make([]bool, len(b.ops))
		}
		b.elided[i] = true
	}
}

// checkCount returns an error if the work did not return one value per operation.
func checkCount[T any](values []T, want int) error {
	if len(values) != want {
		return fmt.Errorf("%w: the work of a batch returned %d values for %d operations", ErrInvalidArgument, len(values), want)
	}
	return nil
}

// answerSeconds gives each repeated key of the batch the result of its first item.
func (b *batch[T, Tx]) answerSeconds(ctx context.Context) {
	for i, first := range b.first {
		if first == i || b.results[i].Outcome != 0 {
			continue
		}
		mine, other := b.ops[i].fingerprint, b.ops[first].fingerprint
		if !mine.IsZero() && mine.Alg != other.Alg { // only the record shows whether it is the same request
			b.alone(ctx, i)
			continue
		}
		res, err := b.second(&b.ops[i], first)
		if b.results[first].Outcome == Replayed && res.Outcome != Replayed && res.Outcome != Mismatch { // the record has the value, which a copy would encode again
			b.alone(ctx, i)
			continue
		}
		b.answer(i, res, err)
	}
}

func (b *batch[T, Tx]) second(op *operation, first int) (Result[T], error) {
	was := &b.results[first]
	switch differs := op.fingerprint.Conflicts(b.ops[first].fingerprint); was.Outcome {
	case Executed, Replayed, Rejected, Expired, Elided: // there is a record
		if differs {
			return Result[T]{Outcome: Mismatch}, op.fail(Mismatch, ErrMismatch, nil)
		}
	default:
		if differs { // it may come again, and be the first then
			return Result[T]{Outcome: InProgress}, op.refusal(&driver.ClaimResult{Decision: driver.DecideInProgress})
		}
	}
	if was.Outcome != Executed && was.Outcome != Replayed {
		return Result[T]{Outcome: was.Outcome}, was.Err
	}
	saved, _ := encode(op.core, op.call, was.Value, b.summarize)
	if first < len(b.elided) && b.elided[first] && saved.Kind == driver.ResultValue {
		saved = withoutData(saved)
	}
	return replayed[T](op, b.ops[first].fingerprint, &saved) // a separate copy
}

// split returns the parts in which a group is run again after its work failed.
func split(part []int, err error) [][]int {
	var e *itemError
	if errors.As(err, &e) {
		if k := slices.Index(part, e.item); k >= 0 {
			return [][]int{part[:k], part[k : k+1], part[k+1:]}
		}
	}
	return [][]int{part[:len(part)/2], part[len(part)/2:]}
}
