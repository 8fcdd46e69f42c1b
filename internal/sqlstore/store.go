package sqlstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/retry"
	"github.com/everonce/everonce/internal/sqldb"
)

// Store is a [driver.TxStore] in the tables of a SQL database. It is safe for concurrent use.
type Store[Tx any] struct {
	driver  Driver[Tx]
	dialect *sqldb.Dialect
	traits  Traits
	schema  sqldb.Schema
	text    *Statements
	locks   KeyLocker[Tx] // nil where the database itself can try a lock
	checked atomic.Bool   // the schema's version
	hits    hitRate
	misses  missHints
	lease   leaseBound
	purged  atomic.Pointer[place] // where the latest purge has got to, if it left more
	stopped sync.Map              // by its scope, the ID at which DeleteScope has reached its limit
}

var (
	_ driver.TxStore[any]   = (*Store[any])(nil)
	_ driver.Lister         = (*Store[any])(nil)
	_ driver.ScopeDeleter   = (*Store[any])(nil)
	_ driver.HealthChecker  = (*Store[any])(nil)
	_ driver.WriteChecker   = (*Store[any])(nil)
	_ driver.IdentityKeeper = (*Store[any])(nil)
)

// New returns a store that uses a driver.
func New[Tx any](db Driver[Tx]) *Store[Tx] {
	s := &Store[Tx]{driver: db, dialect: db.Dialect(), traits: db.Traits(), text: db.Statements()}
	s.schema = sqldb.Schema{Name: metaSchema, Meta: s.text.Meta, Migrations: db.Migrations(), Hint: s.traits.MigrateHint}
	s.locks, _ = db.(KeyLocker[Tx])
	return s
}

// SQL returns the store's database, for packages that keep their own tables beside the store's.
func (s *Store[Tx]) SQL() sqldb.DB[Tx] { return s.driver }

// now adds the store's time to the arguments of a statement, where the process's clock is the store's.
func (s *Store[Tx]) now(args []any) []any {
	if s.dialect.Clock == nil {
		return args
	}
	return append(args, s.dialect.Clock().UnixMicro())
}

// call makes a call of a statement that takes the time.
func (s *Store[Tx]) call(st *sqldb.Statement, args ...any) *sqldb.Call {
	return &sqldb.Call{Statement: st, Args: s.now(args)}
}

// readRow makes the call of Read, or of ReadLocked, into w.
func (s *Store[Tx]) readRow(st *sqldb.Statement, id *driver.RecordID, w *row) *sqldb.Call {
	*w = row{locked: true}
	if s.dialect.Clock != nil { // where the statement answers no row there is no record
		w.now = s.dialect.Clock().UTC().Truncate(time.Microsecond)
		return &sqldb.Call{Statement: st, Args: []any{id[:], w.now.UnixMicro()}, Each: w.scan}
	}
	return &sqldb.Call{Statement: st, Args: []any{id[:]}, Each: w.scan}
}

// readSteps makes the call that appends the steps of a record to it: one that cannot be read by its name, without a
// state.
func (s *Store[Tx]) readSteps(rec *driver.Record) *sqldb.Call {
	return &sqldb.Call{Statement: s.text.ReadSteps, Args: []any{rec.ID[:]}, Each: func(r sqldb.Row) error {
		step, err := scanStep(r)
		if errors.Is(err, driver.ErrCorruptRecord) {
			step, err = driver.StepRecord{Name: step.Name}, nil
		}
		rec.Steps = append(rec.Steps, step)
		return err
	}}
}

// load reads a record through c, with its steps if they matter.
func (s *Store[Tx]) load(ctx context.Context, c sqldb.Conn, id *driver.RecordID, w *row) error {
	if err := c.Send(ctx, s.readRow(s.text.Read, id, w)); err != nil {
		return err
	}
	if !w.stepped() {
		return nil
	}
	return c.Send(ctx, s.readSteps(&w.rec))
}

// find is load for a key that is probably new.
func (s *Store[Tx]) find(ctx context.Context, c sqldb.Conn, id *driver.RecordID, w *row) error {
	first := s.firstRead(s.text.Read, id, w)
	if err := c.Send(ctx, first); err != nil {
		return err
	}
	return s.readOn(ctx, c, first, id, w)
}

// firstRead makes the call that a look for a key begins with: a mere probe, where that is cheaper and
// will probably do.
func (s *Store[Tx]) firstRead(st *sqldb.Statement, id *driver.RecordID, w *row) *sqldb.Call {
	read := s.readRow(st, id, w)
	if s.text.Probe == nil || s.hits.likely() {
		return read
	}
	return &sqldb.Call{Statement: s.text.Probe, Args: []any{id[:]}}
}

// readOn reads what firstRead has found and not read.
func (s *Store[Tx]) readOn(ctx context.Context, c sqldb.Conn, first *sqldb.Call, id *driver.RecordID, w *row) error {
	if first.Statement == s.text.Probe {
		if first.Affected == 0 {
			return nil
		}
		return s.load(ctx, c, id, w)
	}
	if !w.stepped() {
		return nil
	}
	return c.Send(ctx, s.readSteps(&w.rec))
}

// swapTries bounds how often a record that changes under our hands is read again. Each time another
// writer has got ahead, so it ends much sooner.
const swapTries = 100

// errBusyKey says that a record kept changing, or that a transaction held its key.
var errBusyKey = errors.New("other writers keep changing the record")

// replace writes next over the record that was read, or inserts it if there was no record, and reports whether it was
// in time.
func (s *Store[Tx]) replace(ctx context.Context, c sqldb.Conn, read *row, next *driver.Record) (bool, error) {
	steps := read.steps
	if next.Steps == nil {
		steps = 0
	}
	var call *sqldb.Call
	if read.found {
		call = &sqldb.Call{Statement: s.text.Swap, Args: swapArgs([]any{next.ID[:], read.rev}, next, steps)}
	} else {
		call = &sqldb.Call{Statement: s.text.Insert, Args: swapArgs([]any{next.ID[:], string(next.Scope), next.Name}, next, 0)}
	}
	calls := []*sqldb.Call{call}
	if read.steps > 0 && steps == 0 && s.text.DropSteps != nil {
		call.Must = true
		calls = append(calls, &sqldb.Call{Statement: s.text.DropSteps, Args: []any{next.ID[:]}})
	}
	if err := c.Send(ctx, calls...); err != nil && !errors.Is(err, sqldb.ErrNothingWritten) {
		return false, err
	}
	return call.Affected > 0, nil
}

// decide reads a record, lets fn decide, and writes the record that fn returns, until no other writer comes between. fn
// gets nil if there is no record, and returns nil if there is nothing to write.
func (s *Store[Tx]) decide(ctx context.Context, c sqldb.Conn, id *driver.RecordID, fn func(rec *driver.Record, w *row) (*driver.Record, error)) error {
	for try := range swapTries {
		var w row
		if err := s.load(ctx, c, id, &w); err != nil {
			return err
		}
		rec, err := w.record()
		if err != nil {
			return err
		}
		next, err := fn(rec, &w)
		if next == nil || err != nil {
			return err
		}
		if done, err := s.replace(ctx, c, &w, next); done || err != nil {
			return err
		}
		if err := pauseBriefly(ctx, try); err != nil {
			return err
		}
	}
	return errBusyKey
}

// pauseBriefly lets the writer that was faster finish.
func pauseBriefly(ctx context.Context, try int) error {
	return retry.Pause(ctx, time.Duration(min(try, 20))*time.Millisecond)
}

// Get reads a record with its steps: see [driver.Store].
func (s *Store[Tx]) Get(ctx context.Context, req driver.GetRequest) (driver.GetResult, error) {
	if err := s.ready(ctx); err != nil {
		return driver.GetResult{}, err
	}
	res, err := s.get(ctx, reader[Tx]{s.driver}, req)
	s.hits.count(res.Found)
	return res, s.wrapError("get", err)
}

func (s *Store[Tx]) get(ctx context.Context, c sqldb.Conn, req driver.GetRequest) (res driver.GetResult, err error) {
	var w *row
	if req.Brief && s.text.Brief != nil {
		read := s.readBrief(&req.ID)
		w = &read.row
		if err = c.Send(ctx, &read.call); err == nil {
			s.misses.note(&req.ID, !w.found)
		}
	} else {
		w = new(row)
		err = s.find(ctx, c, &req.ID, w)
	}
	if err != nil {
		return res, err
	}
	res.Now = w.now
	rec, err := w.record()
	if err != nil || rec == nil || rec.GoneAt(w.now) {
		return res, err
	}
	if rec.Format > driver.FormatVersion {
		return res, driver.ErrNewerRecord
	}
	res.Found, res.Record = true, *rec
	return res, nil
}

// reader is the driver's way of reading as a Conn.
type reader[Tx any] struct{ driver Driver[Tx] }

func (r reader[Tx]) Send(ctx context.Context, calls ...*sqldb.Call) error {
	return r.driver.Read(ctx, calls...)
}

// lifetimeMicros is a lifetime's total as an argument, or nil where a record is kept until it is settled.
func lifetimeMicros(l driver.Lifetime, expires bool) any {
	if !expires {
		return nil
	}
	return l.Total().Microseconds()
}

// write runs op through the driver, if the tables are known to be there.
func (s *Store[Tx]) write(ctx context.Context, what string, op func(ctx context.Context, c sqldb.Conn) error) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	return s.wrapError(what, s.driver.Write(ctx, op))
}

// refusals are the errors that are not failures of the store.
var refusals = [...]error{driver.ErrLeaseLost, driver.ErrAttemptEnded, driver.ErrConflict, driver.ErrTxTooLong, driver.ErrOtherStore}

// wrapError gives an error of the driver its meaning: the named reason, and that it is the store's failure.
func (s *Store[Tx]) wrapError(what string, err error) error {
	if err == nil {
		return nil
	}
	for _, refusal := range refusals {
		if errors.Is(err, refusal) {
			return err
		}
	}
	return sqldb.Failed(s.driver, what, s.traits.MigrateHint, err)
}
