// Package driver is the contract of stores: what a store keeps, what it is asked for, and what it answers. Package
// everonce is the engine over it, as database/sql is over database/sql/driver. Applications use everonce; they do not
// import this package.
//
// A store implements [Store], and [TxStore] if its records can commit together with the application's writes. Optional
// powers are interfaces besides: [Lister], [ScopeDeleter], [HealthChecker], [WriteChecker], [IdentityKeeper],
// [IdentityReader], [Recaller], [ChangeWaiter], [TxBatch].
//
// Package driver/transition has a record's life as pure functions, and driver/drivertest the suite that every store
// passes.
package driver
