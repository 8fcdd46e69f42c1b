// Package everonce is the receiver's half of at-least-once delivery: however many times an operation
// arrives, it takes effect once.
//
// Every reliable channel delivers more than once: HTTP clients retry, brokers redeliver, RPC frameworks
// and sagas retry. A receiver that must not charge twice names each operation by a [Key] that the sender
// repeats, and runs it through [Do], or through [Transact] or [DoTx] if the effect is in the database:
//
//	r, err := everonce.NewReceiver(store, everonce.Refuse, nil)
//	…
//	res, err := everonce.Do(ctx, r, key, func(ctx context.Context, a *everonce.Attempt) (Receipt, error) {
//		return gateway.Charge(ctx, amount, a.DownstreamKey("charge"))
//	}, everonce.FingerprintOf(amount, currency))
//
// # What is guaranteed, in which mode
//
// Transactional ([Transact], [DoTx], [StepTx]): the effect is in the same database as the record, and both commit
// together. Exactly once, whatever crashes, as long as the database keeps what it committed.
//
// Guarded ([Do], [Step]): the effect is anywhere else. Never two attempts at once while leases hold; a
// finished attempt is never repeated; an attempt whose outcome is unknown, because its process died or its
// error does not tell, is settled by the [Policy] that the application had to choose.
//
// Both promises hold for [Lifetime.Total] after the last write. Afterwards the key is new.
//
// # What is not guaranteed
//
// A key that is made anew for each try protects nothing. And no library knows whether a call that got no answer
// took hold: everonce says "unknown" ([ErrOutcomeUnknown]) where others run it again. An operation that is
// idempotent by itself needs no record at all.
//
// # Where to read
//
// Applications: [Do], [Transact], [TransactBatch], [DoTx], [Step], [StepTx], [Policy], [Options], [Lifetime], [Outcome], the errors,
// [Receiver.Settle], [LogObserver], [JoinObservers].
//
// Adapters and tools: [AttemptFrom], [Lookup], [TxReceiver.InTx], [Error], [Observer], [Codec], [WithSummary], [Settle], [PowerOf].
//
// Writers of stores: [Store], [TxStore], [Decide], [Record], the requests and results, and the optional
// powers [Lister], [ScopeDeleter], [HealthChecker], [WriteChecker], [IdentityKeeper], [IdentityReader], [Recaller], [ChangeWaiter],
// [TxBatch].
//
// The stores are in store/…. To write one of your own, implement [Store] and run the suite in store/drivertest.
package everonce
