// Package sqldb is the contract between a SQL database and the packages that keep tables in it: the engine of the
// stores, internal/sqlstore, and the patterns outbox, inbox and saga, whose tables stand beside a store's. It imports
// no client library; the stores' modules implement [DB].
//
// Texts are templates: {1i}, {2t} and {3b} are the first argument, a number, the second, a text, and the third, bytes;
// {now} is the database's time in microseconds since 1970. See [Dialect.Statement].
package sqldb
