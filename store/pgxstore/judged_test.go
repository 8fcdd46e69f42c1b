package pgxstore_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce/internal/testing/corruptrows"
)

// Whatever a column contains, all statements judge the record as a reader of it does.
func TestAllStatementsJudgeARecordAlike(t *testing.T) {
	t.Parallel()
	h := newPgx(t, setup{})
	corruptrows.Run[pgx.Tx](t, h.store, corruptrows.Database{Records: h.record(), Bytes: corruptrows.Hex(`'\x`), Exec: func(statement string) error {
		_, err := admin(t).Exec(t.Context(), statement)
		return err
	}})
}
