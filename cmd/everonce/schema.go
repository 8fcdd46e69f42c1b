package main

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/everonce/everonce/cmd/everonce/internal/storeurl"
)

// recordTables names the tables of the store itself.
const recordTables = "records"

// schema writes the SQL for administrators who create the tables by hand.
func (a *app) schema() *cobra.Command {
	var opts storeurl.Options
	var of string
	var mysql bool
	names := append(append([]string{recordTables}, patternNames()...), sessionTables)
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Write the SQL that creates the tables of a PostgreSQL store, or those beside it",
		Long: `schema writes the SQL that creates the tables of a PostgreSQL store; with --mysql, of a
MariaDB or MySQL store; with --for, of an outbox, an inbox, sagas or client sessions beside
it. A database administrator runs it where the application's own role may not create
tables. It connects to nothing. Run it once, on an existing schema without such tables.`,
		Example: "  everonce schema --schema payments | psql -v ON_ERROR_STOP=1 -1 postgres://admin@db/shop\n  everonce schema --for outbox --schema payments\n  everonce schema --mysql | mariadb shop",
		Args:    noArgs,
		RunE: a.run(func(*cobra.Command, []string) error {
			text, err := schemaText(of, mysql, opts)
			if err == nil {
				_, err = a.out.Write([]byte(text))
			}
			return err
		}),
	}
	cmd.Flags().StringVar(&of, "for", recordTables, "whose tables: "+strings.Join(names, ", "))
	complete(cmd, "for", names...)
	cmd.Flags().BoolVar(&mysql, "mysql", false, "for a MariaDB or MySQL store")
	cmd.Flags().StringVar(&opts.Schema, "schema", "", "PostgreSQL schema, or MySQL database, of the tables (default: by the connection)")
	cmd.Flags().StringVar(&opts.TablePrefix, "table-prefix", "", `prefix of the table names (default "everonce_")`)
	return cmd
}

func schemaText(of string, mysql bool, opts storeurl.Options) (string, error) {
	switch {
	case of == recordTables && mysql:
		return storeurl.SchemaMySQL(opts)
	case of == recordTables:
		return storeurl.Schema(opts)
	}
	p, err := patternOf(of)
	if err != nil && of != sessionTables {
		return "", usagef("--for: %w, and %s", err, sessionTables)
	}
	store, err := storeurl.Nowhere(opts, mysql)
	if err != nil {
		return "", err
	}
	if of == sessionTables {
		s, err := sessionsBeside(store, time.Hour) // which is not in the text
		if err != nil {
			return "", err
		}
		return s.Schema(), nil
	}
	table, err := p.of(store, "any", nil) // the text is the same for all consumers
	if err != nil {
		return "", err
	}
	return table.schema(), nil
}
