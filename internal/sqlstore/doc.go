// Package sqlstore is the common part of the SQL stores, written once over a small [Driver] for each database. It
// makes every state change of a record in as few statements as possible. It imports no client library. Applications
// use the modules with a driver: store/sqlitestore, store/pgxstore.
//
// In the common case a state change is one conditional statement: an insert that does nothing if the key exists, or
// an update on condition of token and nonce. If that statement changes nothing, the store reads the record, decides
// by package transition, and writes the record back on condition that its revision is unchanged; if another writer
// was faster, it reads again. So the database decides the frequent cases and one pure function the rare ones, and the
// suite in driver/drivertest compares the two.
//
// In a transaction of the application, a claim writes nothing: it locks the key, without waiting, and reads the
// record. The completion is one insert, which also overwrites a record that is released or gone, and conflicts with
// everything else. So the claim's snapshot may be older than its lock: in PostgreSQL, a caller that claims at the
// moment in which another commits works in vain, is rolled back, and gets the other's result.
package sqlstore
