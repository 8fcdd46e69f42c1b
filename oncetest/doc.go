// Package oncetest tests that an idempotent receiver is one: in the tests of an application that uses
// everonce, or of any that claims as much.
//
// There are six ways in, each useful alone.
//
// # Everything twice
//
// [TwiceTransport], [TwiceHandler] and [TwiceFunc] wrap what an existing suite of tests already uses, so that every
// request or message of it is delivered twice. The suite's assertions then apply to the duplicate, and if its
// answer differs from the first, the test fails:
//
//	client := &http.Client{Transport: oncetest.TwiceTransport(t, http.DefaultTransport, nil)}
//	handle := oncetest.TwiceFunc(t, handlePayment, nil)
//
// # The practice list
//
// [Run] runs what the field asks of an idempotent receiver: three sends, one effect; three and five at
// once; the same key with another amount, or from another client; a failure before the effect and after
// it; a process that dies between the work and its record; a store that fails at 30 % of its calls and a
// gateway at 20 %. It needs to know how to build the system, how to deliver, and where the ledger is:
//
//	func TestPayments(t *testing.T) {
//		oncetest.Run(t, oncetest.Subject{
//			Mode: oncetest.Refuse, // what is promised: at most one effect
//			New: func(tb testing.TB, f *oncetest.Faults) oncetest.System {
//				service := newService(tb, oncetest.FaultStore(memstore.New(nil), f.Plan()), f)
//				return oncetest.System{Deliver: service.deliver, Effects: service.countInLedger}
//			},
//			Capabilities: oncetest.Capabilities{Marks: true, Fingerprints: true, Concurrency: true, EffectFaults: true, StoreFaults: true},
//			Bubble:       true,
//		})
//	}
//
// The example of this package is the whole of such a test. Begin with Deliver and Effects, and declare one
// capability after the other; the tests that wait for one are listed by name in the output (go test -v).
// Nothing is skipped in silence: a capability that is declared and not there fails, and so does a chaos in
// which nothing failed.
//
// Effects are counted in the ledger, never from answers, and judged by the mode. [Transactional] and
// [Reconcile]: one. [Reexecute]: one, counted where downstream keys are deduplicated; and if in the chaos
// no effect ran twice, so that there was nothing to deduplicate, the test says that it was blind.
// [Refuse]: at most one, exactly one where the answer is a result, and an unknown outcome only where a fault
// fell between the claim and the completion.
//
// The chaos is decided by a seed, and sent from one goroutine. A test that fails prints its seed, and what
// was sent and what failed; with EVERONCE_SEED set to it the same happens again, as long as the lease is
// longer than one delivery takes (renewals come on their own time).
//
// # An unruly broker
//
// [RunBroker] is a message broker in this process that delivers at least once, and no better: the producer sends
// messages again, they overtake each other, and answers are lost. It runs a [consume.Consumer] until each message is
// done or a dead letter; what happened how often, the ledger says. For [Run] on a consumer, [AnswerOfVerdict] makes an
// answer of what becomes of a delivery.
//
// # One key
//
// [RecordKeys] tests your producer: a message that it sends again must keep its key.
//
// # Results that come back
//
// [RoundTrip] tests that a saved result loses nothing in its codec, so that a duplicate gets what the first caller got.
//
// # Faults of your choice
//
// [FaultStore] and [FaultTxStore] wrap a store, and [Gateway] is the other side of a guarded effect, that
// deduplicates or does not. Both fail as a [Plan] says, before a call is done or after: [At], [AtCall], [Seeded].
package oncetest
