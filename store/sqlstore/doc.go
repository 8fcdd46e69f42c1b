// Package sqlstore is the engine of the SQL stores: every transition of a record as few statements, written
// once, over a small [Driver] for each database. It imports no client library. Applications use the
// modules that bring a driver: store/sqlitestore, store/pgxstore.
//
// A transition is one conditional statement where the common case allows it: an insert that does nothing
// if the key is there, an update that is conditional on token and nonce. Where that statement changes nothing, the
// record is read, decided by package transition, and written back on condition of the revision that
// was read; if another was faster, it is read again. So the database decides what is frequent, one pure function
// what is rare, and both are compared by the suite in store/storetest.
//
// In a transaction of the application, a claim writes nothing: it locks the key, without waiting, and
// reads the record. The completion is one insert, which also writes over a record that is released or gone,
// and which conflicts with everything else: so it does not matter that the claim's snapshot may
// be older than its lock.
package sqlstore
