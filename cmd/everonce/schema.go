package main

import (
	"github.com/spf13/cobra"

	"github.com/everonce/everonce/cmd/everonce/internal/storeurl"
)

// schema writes the tables, for who creates them by hand.
func (a *app) schema() *cobra.Command {
	var opts storeurl.Options
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Write the SQL that creates the tables of a PostgreSQL store",
		Long: `schema writes the SQL that creates the tables of a PostgreSQL store, for a database
administrator, where the application's own role may not create any. It connects to
nothing. Run it once, on a schema that is there and has no such tables.`,
		Example: "  everonce schema --schema payments | psql -v ON_ERROR_STOP=1 -1 postgres://admin@db/shop",
		Args:    noArgs,
		RunE: a.run(func(*cobra.Command, []string) error {
			text, err := storeurl.Schema(opts)
			if err == nil {
				_, err = a.out.Write([]byte(text))
			}
			return err
		}),
	}
	cmd.Flags().StringVar(&opts.Schema, "schema", "", "PostgreSQL schema of the tables (default: by the search_path)")
	cmd.Flags().StringVar(&opts.TablePrefix, "table-prefix", "", `prefix of the table names (default "everonce_")`)
	return cmd
}
