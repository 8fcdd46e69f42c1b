// Package driver defines the interfaces that stores implement, as used by package everonce. Applications use
// everonce, which re-exports the names that they need.
//
// A store implements [Store], and [TxStore] if its records can commit together with the application's writes.
// Optional powers are separate interfaces: [Lister], [ScopeDeleter], [HealthChecker], [WriteChecker],
// [IdentityKeeper], [IdentityReader], [Recaller], [ChangeWaiter], [Prompter], and [TxBatch] of a transaction. Their
// methods take a request and return a result, like the methods of Store: some of these structs are empty, so that
// fields can be added without breaking stores. Prompter alone has none.
//
// Package driver/transition implements the state changes of a record as pure functions. Package driver/drivertest is
// the suite that every store passes.
package driver
