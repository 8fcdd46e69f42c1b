// Package sqlstore is the engine of the SQL stores: it makes every transition of a record in as few statements as
// possible, and is written once, over a small [Driver] for each database. It imports no client library. Applications use
// the modules that bring a driver: store/sqlitestore, store/pgxstore.
//
// In the common case a transition is one conditional statement: an insert that does nothing
// if the key is there, or an update on condition of token and nonce. If that statement changes nothing, the
// record is read, decided by package transition, and written back on condition that its revision is still the one
// that was read; if another writer was faster, it is read again. So the database decides the frequent cases and one pure
// function the rare ones, and the suite in driver/drivertest compares the two.
//
// In a transaction of the application, a claim writes nothing: it locks the key, without waiting, and
// reads the record. The completion is one insert, which also writes over a record that is released or gone,
// and which conflicts with everything else. So it does not matter that the claim's snapshot may
// be older than its lock: in PostgreSQL, who claims in the moment in which another commits works in vain, is rolled back, and is told
// the other's result.
package sqlstore
