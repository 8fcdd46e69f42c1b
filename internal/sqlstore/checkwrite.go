package sqlstore

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/everonce/everonce/internal/sqldb"

	"github.com/everonce/everonce/driver"
)

// CheckWrite inserts a record under a random key, and removes it: see [driver.WriteChecker]. An insert needs new
// space, which an update may not. If only the first of the two commits, the record that is left is already gone by
// its time.
func (s *Store[Tx]) CheckWrite(ctx context.Context, _ driver.CheckWriteRequest) (res driver.CheckWriteResult, err error) {
	past := time.UnixMicro(1)
	rec := driver.Record{State: driver.StateReleased, Token: 1, Attempt: 1, Format: driver.FormatVersion, CreatedAt: past, UpdatedAt: past, PurgeAt: past}
	rand.Read(rec.ID[:])
	return res, s.write(ctx, "check write", func(ctx context.Context, c sqldb.Conn) error {
		insert := &sqldb.Call{Statement: s.text.Insert, Args: swapArgs([]any{rec.ID[:], "everonce", "check write"}, &rec, 0)}
		if err := c.Send(ctx, insert); err != nil {
			return err
		}
		return c.Send(ctx, &sqldb.Call{Statement: s.text.Remove, Args: []any{rec.ID[:]}})
	})
}
