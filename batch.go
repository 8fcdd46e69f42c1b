package everonce

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/everonce/everonce/driver"
)

// BatchItem names one operation of a batch.
type BatchItem struct {
	Key Key
	// Fingerprint is of what must be the same when the key is used again; the zero value compares nothing.
	Fingerprint Fingerprint
}

// BatchResult is the result of one operation of a batch: what [Transact] would have returned.
type BatchResult[T any] struct {
	Result[T]
	Err error
}

// BatchWork does those operations of a batch that have to be done: the items with the indexes todo, in that order. It
// returns one value for each, in the same order, or an error, and then nothing that it wrote remains. [EachItem]
// makes a BatchWork from work that does one operation.
type BatchWork[T, Tx any] func(ctx context.Context, tx Tx, todo []int) ([]T, error)

// TransactBatch is [Transact] for many operations at once, in one transaction: one statement claims all keys, the
// work does what has to be done, and one statement, sent with the commit, writes all records. The results are in the
// order of the items, each with an outcome and an error of its own. An error of the call itself means that nothing
// ran: it wraps [ErrInvalidArgument] or [driver.ErrIdentity], or is a failure of the store at its first use.
//
// An operation that fails does not fail its neighbours. The work runs for all at once, without savepoints. If it or
// the commit fails, everything is rolled back, and the work is run again for parts: for the failing item alone if
// [EachItem] tells which one it is, otherwise for halves, until the failing item is alone. An operation that is alone
// is treated as in Transact: a permanent failure is saved, any other error is Failed. So the work may run several
// times for one item, but takes effect once; it must have no effects outside tx. Deadlocks, serialization failures
// and lost commits are handled as in Transact.
//
// If another attempt has an operation, it is [ErrInProgress]; nothing is waited for. Keys are claimed in the order of
// their hashes, so that batches never wait for each other's. A key that is in the batch twice is done once: the
// second item gets the result of the first, with a value of its own. If their fingerprints cannot be compared, the
// second item is a Transact of its own. On a store without [driver.TxBatch] the claims and records are single statements.
//
// In the work [AttemptFrom] finds no attempt: use [TxReceiver.DownstreamKey]. The observer is told of each item as of
// a Transact, but the work's context comes from the caller and not from an item's Start. A panic of the work rolls
// back and goes on unwinding. Options, for all items: WithLifetime, WithSummary, WithCodec, Unobserved. At most
// [driver.MaxBatch] items.
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
	c.wait = 0 // no item waits for another's transaction, also where it is alone
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
		observations := b.observe(ctx)
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

// EachItem makes the work of a batch from work that does one operation, that of the item with the index i. If it
// fails, the batch knows which operation failed.
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

// batch is one call of TransactBatch.
type batch[T, Tx any] struct {
	whole     operation // the batch as a place: it has no key
	t         *TxReceiver[Tx]
	work      BatchWork[T, Tx]
	summarize func(T) []byte

	nonce   driver.Nonce // of all its items: a record knows its own alone
	ops     []operation
	first   []int // the first item with the same key; the item itself, mostly
	results []BatchResult[T]
	elided  []bool // by the store, which only the item's own transaction was told; nil where none was
}

// prepare makes operations of the items. What is wrong with one is its own result.
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

func (b *batch[T, Tx]) observe(ctx context.Context) []observation {
	observations := make([]observation, len(b.ops))
	for i := range b.ops {
		if b.results[i].Outcome != 0 { // a wrong key is nobody's operation
			continue
		}
		observations[i] = b.ops[i].observe(ctx, opTransact, "")
		observations[i].ev.Outcome, observations[i].ev.Err = Failed, errUnwound // if the work does not return
	}
	return observations
}

// todo are the items that are to be claimed, in their order.
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
		g := &group[T, Tx]{batch: b, part: part}
		for _, smaller := range g.loop(ctx) {
			b.run(ctx, smaller)
		}
	}
}

// alone runs one operation as [Transact] does.
func (b *batch[T, Tx]) alone(ctx context.Context, i int) {
	run := &transaction[T, Tx]{operation: b.ops[i], t: b.t, summarize: b.summarize}
	run.work = func(ctx context.Context, tx Tx) (v T, err error) {
		// The attempt is taken out of the context: what a work finds there must not depend on its company.
		at := *placeOf(ctx)
		at.attempt = &Attempt{operation: b.ops[i]}
		values, err := b.work(&placedContext{Context: ctx, place: &at}, tx, []int{i})
		if err == nil {
			err = counted(values, 1)
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

// counted refuses work that does not say what became of each operation.
func counted[T any](values []T, want int) error {
	if len(values) != want {
		return fmt.Errorf("%w: the work of a batch returned %d values for %d operations", ErrInvalidArgument, len(values), want)
	}
	return nil
}

// answerSeconds gives to keys that were in the batch before what those came to.
func (b *batch[T, Tx]) answerSeconds(ctx context.Context) {
	for i, first := range b.first {
		if first == i || b.results[i].Outcome != 0 {
			continue
		}
		mine, other := b.ops[i].fingerprint, b.ops[first].fingerprint
		if !mine.IsZero() && mine.Alg != other.Alg { // only the record tells whether it is the same request
			b.alone(ctx, i)
			continue
		}
		res, err := b.second(&b.ops[i], first)
		if b.results[first].Outcome == Replayed && res.Outcome != Replayed && res.Outcome != Mismatch { // the record has it, and it did not go through a codec again
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
	return replayed[T](op, b.ops[first].fingerprint, &saved) // a copy of its own
}

// split returns the parts that a group is run again in after its work has failed.
func split(part []int, err error) [][]int {
	var e *itemError
	if errors.As(err, &e) {
		if k := slices.Index(part, e.item); k >= 0 {
			return [][]int{part[:k], part[k : k+1], part[k+1:]}
		}
	}
	return [][]int{part[:len(part)/2], part[len(part)/2:]}
}
