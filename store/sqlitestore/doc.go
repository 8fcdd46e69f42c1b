// Package sqlitestore keeps records in a SQLite file: the embedded store. It is pure Go.
package sqlitestore
