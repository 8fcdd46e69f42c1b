// Package otelonce reports to OpenTelemetry what everonce does: how operations ended, what was repeated and absorbed,
// what is unknown, and how long queues are; and, if enabled, a span for each operation.
//
//	provider, page, err := scrape.New()                        // figures for Prometheus; or any other MeterProvider
//	observer, err := otelonce.NewObserver(provider, nil, nil)  // nil: no traces
//	receiver, err := everonce.NewReceiver(store, everonce.Refuse, &everonce.Options{Observer: observer})
//	go observer.CountRecords(ctx, store, time.Minute)
//	http.Handle("/metrics", page)
//
// The observer's methods are the Observe functions of the other packages: [Observer.HTTP] of httponce,
// [Observer.Consumer] of consume, [Observer.Relayed] of an outbox's relay, [Observer.Inbox] of an inbox's worker,
// [Observer.Saga] of a saga's runner, and [Observer.Purged] of a janitor. [Observer.Backlog] shows what waits in their
// tables.
//
// # Labels
//
// No label has a key, its hash, a scope, a path or an error's text. Labels are words of closed lists (outcome, kind,
// state, disposition, reason), names that the program gives (consumer, system, table, the patterns of routes), and
// topics and definitions of sagas, up to [Options].MaxValues of each; the others are "other".
//
// # Traces
//
// A span is one call: an operation, a step, a settlement. The context of the work has it, so spans of the work are its
// children. The claim writes the span into the record, after its owner. A repetition, or an attempt that takes over,
// links to it, from any process.
//
// A trace comes in from HTTP by [Observer.Continue] or any other middleware, and from messages by [Consumer.Context].
// It goes out with an outbox's event by [Observer.Headers].
package otelonce
