package sqlqueue

import (
	"strings"

	"github.com/everonce/everonce/internal/sqldb"
)

// Definitions returns the statements that create the table, with the given specific columns: "payload {bytes} NOT
// NULL".
func (s *Spec) Definitions(d *sqldb.Dialect, own ...string) []string {
	t := s.Table
	columns := []string{
		"seq {serial}", "id {text} NOT NULL", s.Group + " {text} NOT NULL",
		"order_key {text} NOT NULL", "state {int} NOT NULL", "attempts {int} NOT NULL", "rank {int} NOT NULL", "due_at {int} NOT NULL",
		"created_at {int} NOT NULL", "done_at {int}", "token {int} NOT NULL", "error {long} NOT NULL",
	}
	if s.Lane != s.Group {
		columns = append(columns, s.Lane+" {text} NOT NULL")
	}
	columns = append(columns, own...)
	if d.MySQL {
		return []string{d.Definition("CREATE TABLE IF NOT EXISTS {"+t+"} (\n\t"+strings.Join(append(columns, s.mysqlKeys()...), ",\n\t")+"\n) ENGINE = InnoDB ROW_FORMAT = DYNAMIC", t)}
	}
	templates := []string{
		"CREATE TABLE {" + t + "} (\n\t" + strings.Join(columns, ",\n\t") + "\n)",
		"CREATE UNIQUE INDEX {" + t + "_id} ON {" + t + "} (" + strings.Join(s.Unique, ", ") + ")",
		"CREATE INDEX {" + t + "_due} ON {" + t + "} (rank, seq) WHERE state = 0 AND order_key = ''",
		"CREATE INDEX {" + t + "_line} ON {" + t + "} (rank, seq) WHERE state = 0 AND order_key <> ''",
		"CREATE INDEX {" + t + "_order} ON {" + t + "} (" + s.Group + ", order_key, seq) WHERE state IN (0, 2) AND order_key <> ''",
		"CREATE INDEX {" + t + "_aside} ON {" + t + "} (seq) WHERE state IN (2, 3)",
		"CREATE INDEX {" + t + "_done} ON {" + t + "} (done_at) WHERE state IN (4, 5)",
	}
	for i, template := range templates {
		templates[i] = d.Definition(template, t)
	}
	return templates
}
