package replication

import (
	"context"
	"fmt"
	"hash/fnv"

	"github.com/jackc/pgx/v5"
)

// columnLists is the first version of PostgreSQL with column lists in publications.
const columnLists = 150000

// publish makes sure that a publication sends the inserts into the table, and returns its name. It sends one column
// only, so payloads are not sent.
func (l *listener) publish(ctx context.Context, conn *pgx.Conn) (string, error) {
	var schema, table string
	var version int
	err := conn.QueryRow(ctx, "SELECT coalesce(min(n.nspname), ''), coalesce(min(c.relname), ''), current_setting('server_version_num')::int"+
		" FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass($1)", l.table).Scan(&schema, &table, &version)
	if err != nil {
		return "", err
	}
	if table == "" {
		return "", fmt.Errorf("%w: the table %s does not exist for this role and search path (call Outbox.Migrate first)", ErrRefused, l.table)
	}
	full := pgx.Identifier{schema, table}.Sanitize()
	name := l.set.Publication
	if name == "" {
		h := fnv.New64a()
		_, _ = h.Write([]byte(full))
		name = fmt.Sprintf("everonce_outbox_%016x", h.Sum64())
	}
	var exists, sends bool
	err = conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_publication WHERE pubname = $1),"+
		" EXISTS (SELECT FROM pg_publication p JOIN pg_publication_tables t USING (pubname) WHERE pubname = $1 AND pubinsert AND schemaname = $2 AND tablename = $3)",
		name, schema, table).Scan(&exists, &sends)
	if err != nil || sends {
		return name, err
	}
	what := "TABLE " + full
	if version >= columnLists {
		what += " (seq)"
	}
	quoted := pgx.Identifier{name}.Sanitize()
	switch {
	case exists && l.set.Publication != "": // it may have other readers
		return "", fmt.Errorf("%w: the publication %s does not send the inserts into %s (ALTER PUBLICATION %[2]s ADD %[4]s)", ErrRefused, quoted, full, what)
	case exists: // the table was created again
		_, err = conn.Exec(ctx, "ALTER PUBLICATION "+quoted+" ADD "+what)
	default:
		_, err = conn.Exec(ctx, "CREATE PUBLICATION "+quoted+" FOR "+what+" WITH (publish = 'insert')")
	}
	if hasCode(err, duplicateObject) || hasCode(err, uniqueViolation) { // another listener has just created it
		err = nil
	}
	return name, err
}
