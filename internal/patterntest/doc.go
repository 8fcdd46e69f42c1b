// Package patterntest has the tests of outbox, inbox, saga, sessions and producers on real databases: SQLite,
// PostgreSQL through pgx and through database/sql, MariaDB, and MySQL where EVERONCE_TEST_MYSQL_URL names one.
package patterntest
