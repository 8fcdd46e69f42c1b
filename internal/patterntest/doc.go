// Package patterntest has the tests of outbox, inbox and saga on real databases: SQLite, and PostgreSQL through pgx and
// through database/sql.
package patterntest
