package sqlitestore

import (
	"database/sql"
	"testing"

	"github.com/everonce/everonce/internal/oddrows"
)

// Whatever a column contains, all statements judge the record as a reader of it does.
func TestAllStatementsJudgeARecordAlike(t *testing.T) {
	s := openTest(t, nil)
	oddrows.Run[*sql.Tx](t, s, oddrows.Database{Records: "everonce_record", Bytes: oddrows.Hex("x'"), Exec: func(statement string) error {
		_, err := s.DB().ExecContext(t.Context(), statement)
		return err
	}})
}
