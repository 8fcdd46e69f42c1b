package enginetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/transition"
)

// Errors of the database in a map.
var (
	errDeadlock   = errors.New("deadlock: the transaction was rolled back")
	errChanged    = errors.New("could not serialize: a row has changed")
	errCommitLost = errors.New("commit: connection reset by peer")
	errTxDone     = errors.New("the transaction has ended")
	errTxAborted  = errors.New("the transaction is aborted until it is rolled back to a savepoint")
	errConstraint = errors.New("constraint violated")
)

// mapStore is a small database: a table of numbers for the application, and the records, with
// transactions over both. A transaction sees its own writes; it locks the keys that it claims, without
// waiting; it fails at its commit if a row that it touched has changed meanwhile. Every call can be
// disturbed.
type mapStore struct {
	faults
	mu       sync.Mutex
	records  map[everonce.RecordID]driver.Record
	rows     map[string]int
	versions map[string]int
	locks    map[everonce.RecordID]*mapTx
	open     []*mapTx
	identity *[32]byte
	begun    int
	again    int // rollbacks of what was rolled back
}

var (
	_ driver.TxStore[*mapTx] = (*mapStore)(nil)
	_ driver.IdentityKeeper  = (*mapStore)(nil)
)

func newMapStore() *mapStore {
	return &mapStore{
		records: map[everonce.RecordID]driver.Record{}, rows: map[string]int{}, versions: map[string]int{},
		locks: map[everonce.RecordID]*mapTx{},
	}
}

func newTxReceiver(t testing.TB, s driver.TxStore[*mapTx], o *everonce.Options) *everonce.TxReceiver[*mapTx] {
	t.Helper()
	r, err := everonce.NewTxReceiver(s, o)
	if err != nil {
		t.Fatalf("NewTxReceiver: %v", err)
	}
	t.Cleanup(func() { checkLeftNothing(t, r) })
	return r
}

// row returns what is committed in a row.
func (s *mapStore) row(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rows[name]
}

// record returns what is committed of a key; its zero value where there is nothing.
func (s *mapStore) record(key everonce.Key) driver.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.records[key.RecordID()]
}

// checkIdle reports transactions that were left open, or rolled back more than once: a real connection has another
// by then, or is given up for it.
func (s *mapStore) checkIdle(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.open) > 0 || len(s.locks) > 0 {
		t.Errorf("%d transactions and %d locks were left open", len(s.open), len(s.locks))
	}
	if s.again > 0 {
		t.Errorf("%d transactions were rolled back again", s.again)
	}
}

// abort ends all open transactions, as a server does that restarts.
func (s *mapStore) abort() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, tx := range slices.Clone(s.open) {
		tx.end()
	}
}

// update writes a record outside of transactions.
func (s *mapStore) update(id everonce.RecordID, change func(*driver.Record, time.Time) (*driver.Record, error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var rec *driver.Record
	if r, ok := s.records[id]; ok {
		rec = &r
	}
	next, err := change(rec, time.Now())
	if next != nil {
		s.records[id] = *next
	}
	return err
}

func (s *mapStore) Claim(ctx context.Context, req driver.ClaimRequest) (res driver.ClaimResult, err error) {
	return res, s.run(ctx, "Claim", req, func() error {
		return s.update(req.ID, func(rec *driver.Record, now time.Time) (next *driver.Record, err error) {
			if s.locks[req.ID] != nil {
				res = driver.ClaimResult{Decision: driver.DecideInProgress, Now: now}
				return nil, nil
			}
			next, res, err = transition.Claim(rec, req, now)
			return next, err
		})
	})
}

func (s *mapStore) Complete(ctx context.Context, req driver.CompleteRequest) (res driver.CompleteResult, err error) {
	return res, s.run(ctx, "Complete", req, func() error {
		return s.update(req.ID, func(rec *driver.Record, now time.Time) (*driver.Record, error) {
			return transition.Complete(rec, req, now)
		})
	})
}

func (s *mapStore) Release(ctx context.Context, req driver.ReleaseRequest) (res driver.ReleaseResult, err error) {
	return res, s.run(ctx, "Release", req, func() error {
		return s.update(req.ID, func(rec *driver.Record, now time.Time) (next *driver.Record, err error) {
			next, res, err = transition.Release(rec, req, now)
			return next, err
		})
	})
}

func (s *mapStore) Renew(ctx context.Context, req driver.RenewRequest) (res driver.RenewResult, err error) {
	return res, s.run(ctx, "Renew", req, func() error {
		return s.update(req.ID, func(rec *driver.Record, now time.Time) (*driver.Record, error) {
			return transition.Renew(rec, req, now)
		})
	})
}

func (s *mapStore) SaveStep(ctx context.Context, req driver.SaveStepRequest) (res driver.SaveStepResult, err error) {
	return res, s.run(ctx, "SaveStep", req, func() error {
		return s.update(req.ID, func(rec *driver.Record, now time.Time) (*driver.Record, error) {
			return transition.SaveStep(rec, req, now)
		})
	})
}

func (s *mapStore) Get(ctx context.Context, req driver.GetRequest) (res driver.GetResult, err error) {
	return res, s.run(ctx, "Get", req, func() error {
		return s.update(req.ID, func(rec *driver.Record, now time.Time) (*driver.Record, error) {
			res.Now = now
			if rec != nil && !rec.GoneAt(now) {
				res.Found, res.Record = true, *rec
			}
			return nil, nil
		})
	})
}

func (s *mapStore) Purge(ctx context.Context, req driver.PurgeRequest) (res driver.PurgeResult, err error) {
	return res, s.run(ctx, "Purge", req, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		for id, rec := range s.records {
			switch transition.Purge(&rec, time.Now()) {
			case transition.Remove:
				delete(s.records, id)
				res.Records++
			case transition.DropResult:
				s.records[id] = *transition.Drop(&rec)
				res.Results++
			}
		}
		return nil
	})
}

func (s *mapStore) KeepIdentity(ctx context.Context, req driver.KeepIdentityRequest) (res driver.KeepIdentityResult, err error) {
	return res, s.run(ctx, "KeepIdentity", req, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.identity == nil {
			s.identity = &req.Check
		}
		if *s.identity != req.Check {
			return driver.ErrIdentity
		}
		return nil
	})
}

func (s *mapStore) ClassifyTx(err error) driver.TxErrorClass {
	switch {
	case errors.Is(err, errDeadlock), errors.Is(err, errChanged):
		return driver.TxErrorRetry
	case errors.Is(err, errCommitLost):
		return driver.TxErrorCommitLost
	}
	return driver.TxErrorOther
}

// begin begins a transaction of the application's own.
func (s *mapStore) begin() *mapTx {
	s.mu.Lock()
	defer s.mu.Unlock()
	tx := new(mapTx)
	s.beginIn(tx)
	return tx
}

// beginIn begins a transaction in a handle, as one is that outlives its transactions. The store is locked.
func (s *mapStore) beginIn(tx *mapTx) {
	s.begun++
	*tx = mapTx{s: s, seen: map[string]int{}, written: written{
		records: map[everonce.RecordID]driver.Record{}, rows: map[string]int{}, locks: map[everonce.RecordID]bool{},
	}}
	s.open = append(s.open, tx)
}

func (s *mapStore) Begin(ctx context.Context, req driver.BeginRequest) (h driver.TxHandle[*mapTx], res driver.ClaimResult, err error) {
	if ctx.Err() != nil {
		return nil, res, cutShort(ctx)
	}
	err = s.run(ctx, "Begin", req, func() error {
		tx := s.begin()
		tx.deadline = time.Now().Add(req.Timeout)
		handle := &mapHandle{tx: tx}
		if req.Claim != nil {
			if res, err = handle.Claim(ctx, *req.Claim); err != nil || res.Decision != driver.DecideClaimed {
				tx.Rollback()
				return err
			}
		}
		h = handle
		return nil
	})
	if err != nil {
		return nil, driver.ClaimResult{}, err
	}
	return h, res, nil
}

func (s *mapStore) Join(_ context.Context, tx *mapTx) (driver.TxHandle[*mapTx], error) {
	if tx.s != s {
		return nil, driver.ErrOtherStore
	}
	return &mapHandle{tx: tx, joined: true}, nil
}

// mapTx is a transaction of a mapStore, as the application uses it.
type mapTx struct {
	s        *mapStore
	deadline time.Time // zero: none
	ended    bool
	aborted  bool           // a statement failed: only a rollback helps
	seen     map[string]int // the versions of the rows that it touched
	written  written
	points   []savepoint
}

// written is what a transaction has done so far.
type written struct {
	records map[everonce.RecordID]driver.Record
	rows    map[string]int
	locks   map[everonce.RecordID]bool
}

func (w written) clone() written {
	return written{maps.Clone(w.records), maps.Clone(w.rows), maps.Clone(w.locks)}
}

type savepoint struct {
	name    string
	written written
}

// Get reads a number.
func (tx *mapTx) Get(name string) (int, error) {
	tx.s.mu.Lock()
	defer tx.s.mu.Unlock()
	if err := tx.usable(); err != nil {
		return 0, err
	}
	return tx.get(name), nil
}

// Add adds to a number, and returns it.
func (tx *mapTx) Add(name string, n int) (int, error) {
	tx.s.mu.Lock()
	defer tx.s.mu.Unlock()
	if err := tx.usable(); err != nil {
		return 0, err
	}
	n += tx.get(name)
	tx.written.rows[name] = n
	return n, nil
}

// Violate is a statement that the database refuses: the transaction is aborted.
func (tx *mapTx) Violate() error {
	tx.s.mu.Lock()
	defer tx.s.mu.Unlock()
	tx.aborted = true
	return errConstraint
}

// Deadlock is a statement for which the database ends the transaction.
func (tx *mapTx) Deadlock() error {
	tx.s.mu.Lock()
	defer tx.s.mu.Unlock()
	tx.end()
	return errDeadlock
}

// Commit commits a transaction of the application's own.
func (tx *mapTx) Commit() error {
	tx.s.mu.Lock()
	defer tx.s.mu.Unlock()
	if err := tx.usable(); err != nil {
		tx.end()
		return err
	}
	return tx.commit()
}

// Rollback takes everything back.
func (tx *mapTx) Rollback() {
	tx.s.mu.Lock()
	defer tx.s.mu.Unlock()
	tx.end()
}

func (tx *mapTx) get(name string) int {
	if n, ok := tx.written.rows[name]; ok {
		return n
	}
	if _, ok := tx.seen[name]; !ok {
		tx.seen[name] = tx.s.versions[name]
	}
	return tx.s.rows[name]
}

func (tx *mapTx) usable() error {
	switch {
	case tx.ended:
		return errTxDone
	case !tx.deadline.IsZero() && !time.Now().Before(tx.deadline):
		tx.end()
		return fmt.Errorf("mapstore: %w", everonce.ErrTxTooLong)
	case tx.aborted:
		return errTxAborted
	}
	return nil
}

func (tx *mapTx) commit() error {
	defer tx.end()
	for name, version := range tx.seen {
		if tx.s.versions[name] != version {
			return errChanged
		}
	}
	for name, n := range tx.written.rows {
		tx.s.rows[name] = n
		tx.s.versions[name]++
	}
	maps.Copy(tx.s.records, tx.written.records)
	return nil
}

func (tx *mapTx) end() {
	tx.ended = true
	for id := range tx.written.locks {
		delete(tx.s.locks, id)
	}
	for _, p := range tx.points {
		for id := range p.written.locks {
			delete(tx.s.locks, id)
		}
	}
	tx.s.open = slices.DeleteFunc(tx.s.open, func(o *mapTx) bool { return o == tx })
}

// record returns the record that the transaction sees, or nil.
func (tx *mapTx) record(id everonce.RecordID) *driver.Record {
	if rec, ok := tx.written.records[id]; ok {
		return &rec
	}
	if rec, ok := tx.s.records[id]; ok {
		return &rec
	}
	return nil
}
