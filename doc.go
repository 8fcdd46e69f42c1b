// Package everonce is the receiver's half of at-least-once delivery: however many times an operation
// arrives, it takes effect once.
//
// Every reliable channel delivers more than once: HTTP clients retry, brokers redeliver, RPC frameworks
// and sagas retry. A receiver that must not charge twice names each operation by a [Key] that the sender
// repeats, and executes it through [Do], or through [Transact] or [DoTx] where the effect is in the database:
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
// error says nothing, is settled by the [Policy] that the application had to choose.
//
// Either holds for [Lifetime.Total] after the last write. Afterwards the key is new.
//
// # What is not
//
// An operation that is idempotent by itself needs no record. A key that is made per attempt protects
// nothing. And no library knows whether a call that got no answer took hold: everonce says "unknown"
// ([ErrOutcomeUnknown]) where others run it again.
//
// # Where to read
//
// Applications: [Do], [Transact], [TransactBatch], [DoTx], [Step], [StepTx], [Policy], [Options], [Lifetime], [Outcome], the errors,
// [Receiver.Settle], [StartJanitor], [LogObserver].
//
// Adapters and tools: [AttemptFrom], [Lookup], [TxReceiver.InTx], [Error], [Observer], [Codec], [WithSummary], [Settle].
//
// Writers of stores: [Store], [TxStore], [Decide], [Record], the requests and results, and the optional
// powers [Lister], [ScopeDeleter], [HealthChecker], [IdentityKeeper], [IdentityReader], [Recaller], [ChangeWaiter],
// [TxBatch].
//
// Stores are in store/…; a store of your own is written against [Store] and proven by store/storetest.
package everonce
