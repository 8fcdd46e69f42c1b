package sqlitestore

import (
	"database/sql"
	"testing"

	"github.com/everonce/everonce/internal/testing/corruptrows"
)

// Whatever a column contains, all statements judge the record as a reader of it does.
func TestAllStatementsJudgeARecordAlike(t *testing.T) {
	s := openTest(t, nil)
	corruptrows.Run[*sql.Tx](t, s, corruptrows.Database{Records: "everonce_record", Bytes: corruptrows.Hex("x'"), Exec: func(statement string) error {
		_, err := s.DB().ExecContext(t.Context(), statement)
		return err
	}})
}
