// Package saga runs business transactions of several steps, each of which takes effect once: all of them, or, after one
// has failed permanently, the compensations of the steps that may have had their effect, in reverse order.
//
//	fulfil, err := saga.Define("fulfilment", 1,
//		saga.Step[Order, pgx.Tx]{Name: "reserve", Action: reserve, Compensation: release},
//		saga.Step[Order, pgx.Tx]{Name: "charge", Action: charge, Compensation: refund},
//		saga.Step[Order, pgx.Tx]{Name: "ship", Action: ship, Final: true},
//	)
//	…
//	sagas, err := saga.New(receiver)
//	…
//	err = fulfil.Start(ctx, sagas, tx, "order-7", order) // commits with the caller's transaction
//	…
//	runner, err := sagas.Runner(nil, fulfil)
//	…
//	err = runner.Run(ctx)
//
// Each saga is an operation of the core, each action and each compensation a step of it. Runners in any number of
// processes share the work, and continue sagas whose runner was killed.
//
// # Guarantees
//
// A step in the database ([Step.ActionTx]) commits with the record that it was done (transactional mode: exactly once).
// A step elsewhere ([Step.Action]) runs again, with the same [Call.Key], if it is unknown whether it happened: at least
// once, and once if the participant recognises the key, as everonce's HTTP middleware, its consumers and [Participant]
// do.
//
// After a step was refused permanently ([everonce.Permanent]), or had no retry left, every step that may have had its
// effect is compensated, including one without an answer. So a compensation must succeed if its action never arrived
// (null compensation), and an action may arrive after its compensation (hanging): [Participant] handles both. A saga
// whose compensation keeps failing waits, visibly, for an operator.
package saga
