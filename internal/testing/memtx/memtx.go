// Package memtx is a tiny database with transactions, for tests: records and the effects of an application commit
// together.
package memtx

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/transition"
)

// DB is a [driver.TxStore]. The claim of a key that an open transaction has is answered as in progress.
type DB struct {
	driver.Store // nil: outside of transactions there are no renewals, lists and purges

	mu      sync.Mutex
	records map[driver.RecordID]driver.Record
	effects map[string]int
	busy    map[driver.RecordID]*Tx // keys of open transactions
}

// New returns an empty database.
func New() *DB {
	return &DB{records: map[driver.RecordID]driver.Record{}, effects: map[string]int{}, busy: map[driver.RecordID]*Tx{}}
}

// Count returns how often an effect of that name is committed.
func (db *DB) Count(name string) int {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.effects[name]
}

// Held counts the keys that open transactions hold.
func (db *DB) Held() int {
	db.mu.Lock()
	defer db.mu.Unlock()
	return len(db.busy)
}

// Tx is one transaction: what it has written, not yet in the database.
type Tx struct {
	db      *DB
	records map[driver.RecordID]driver.Record
	effects map[string]int
	claimed []driver.RecordID
	saved   map[string]Tx
	ended   bool
}

var errEnded = errors.New("memtx: the transaction has ended")

// ErrDeadlock is the error that work returns after a deadlock: the transaction was rolled back, and may be run again.
var ErrDeadlock = errors.New("memtx: deadlock, the transaction was rolled back")

// Add is a statement of the application's: one more effect of that name.
func (tx *Tx) Add(name string) error {
	_, err := tx.Inc(name, 1)
	return err
}

// Inc adds n to a counter, and returns what it comes to.
func (tx *Tx) Inc(name string, n int) (int, error) {
	if tx.ended {
		return 0, errEnded
	}
	tx.effects[name] += n
	return tx.db.Count(name) + tx.effects[name], nil
}

// BeginTx begins a transaction of the application's own.
func (db *DB) BeginTx() *Tx {
	return &Tx{db: db, records: map[driver.RecordID]driver.Record{}, effects: map[string]int{}, saved: map[string]Tx{}}
}

// Commit ends such a transaction, with all that was written through it.
func (tx *Tx) Commit() error {
	_, err := (&handle{tx}).Commit(context.Background(), driver.CommitRequest{})
	return err
}

// Rollback undoes it. After Commit it does nothing.
func (tx *Tx) Rollback() error { return (&handle{tx}).Rollback(context.Background()) }

// record reads through the transaction. The database is locked.
func (tx *Tx) record(id driver.RecordID) *driver.Record {
	if rec, ok := tx.records[id]; ok {
		return &rec
	}
	if rec, ok := tx.db.records[id]; ok {
		return &rec
	}
	return nil
}

// Begin implements [driver.TxStore].
func (db *DB) Begin(_ context.Context, req driver.BeginRequest) (driver.TxHandle[*Tx], driver.ClaimResult, error) {
	h := &handle{db.BeginTx()}
	if req.Claim == nil {
		return h, driver.ClaimResult{}, nil
	}
	claim, err := h.Claim(context.Background(), *req.Claim)
	if err != nil || claim.Decision != driver.DecideClaimed {
		return nil, claim, errors.Join(err, h.Rollback(context.Background()))
	}
	return h, claim, nil
}

// Join implements [driver.TxStore].
func (db *DB) Join(_ context.Context, tx *Tx) (driver.TxHandle[*Tx], error) { return &handle{tx}, nil }

// ClassifyTx implements [driver.TxStore].
func (db *DB) ClassifyTx(err error) driver.TxErrorClass {
	if errors.Is(err, ErrDeadlock) {
		return driver.TxErrorRetry
	}
	return driver.TxErrorOther
}

// Claim is for what is recorded outside of transactions.
func (db *DB) Claim(_ context.Context, req driver.ClaimRequest) (res driver.ClaimResult, err error) {
	return res, db.change(req.ID, func(rec *driver.Record) (next *driver.Record, err error) {
		next, res, err = transition.Claim(rec, req, time.Now())
		return next, err
	})
}

// Release ends such a claim.
func (db *DB) Release(_ context.Context, req driver.ReleaseRequest) (res driver.ReleaseResult, err error) {
	return res, db.change(req.ID, func(rec *driver.Record) (next *driver.Record, err error) {
		next, res, err = transition.Release(rec, req, time.Now())
		return next, err
	})
}

func (db *DB) change(id driver.RecordID, to func(rec *driver.Record) (*driver.Record, error)) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	var rec *driver.Record
	if r, ok := db.records[id]; ok {
		rec = &r
	}
	next, err := to(rec)
	if next != nil {
		db.records[id] = *next
	}
	return err
}

// Complete is for what is recorded outside of transactions.
func (db *DB) Complete(_ context.Context, req driver.CompleteRequest) (res driver.CompleteResult, err error) {
	return res, db.change(req.ID, func(rec *driver.Record) (*driver.Record, error) {
		return transition.Complete(rec, req, time.Now())
	})
}

// SaveStep is for what is recorded outside of transactions.
func (db *DB) SaveStep(_ context.Context, req driver.SaveStepRequest) (res driver.SaveStepResult, err error) {
	return res, db.change(req.ID, func(rec *driver.Record) (*driver.Record, error) {
		return transition.SaveStep(rec, req, time.Now())
	})
}

// Get reads a record outside of transactions.
func (db *DB) Get(_ context.Context, req driver.GetRequest) (driver.GetResult, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	rec, ok := db.records[req.ID]
	return driver.GetResult{Found: ok, Record: rec, Now: time.Now()}, nil
}

// handle is an [driver.TxHandle].
type handle struct{ tx *Tx }

func (h *handle) Tx() *Tx { return h.tx }

func (h *handle) Claim(_ context.Context, req driver.ClaimRequest) (driver.ClaimResult, error) {
	db := h.tx.db
	db.mu.Lock()
	defer db.mu.Unlock()
	if by := db.busy[req.ID]; by != nil && by != h.tx {
		return driver.ClaimResult{Decision: driver.DecideInProgress, Now: time.Now()}, nil
	}
	next, res, err := transition.Claim(h.tx.record(req.ID), req, time.Now())
	if next != nil {
		h.tx.records[req.ID] = *next
		h.tx.claimed = append(h.tx.claimed, req.ID)
		db.busy[req.ID] = h.tx
	}
	return res, err
}

func (h *handle) Complete(_ context.Context, req driver.CompleteRequest) (res driver.CompleteResult, err error) {
	h.tx.db.mu.Lock()
	defer h.tx.db.mu.Unlock()
	return res, h.complete(req)
}

func (h *handle) complete(req driver.CompleteRequest) error {
	if h.tx.ended {
		return errEnded
	}
	return h.write(transition.Complete(h.tx.record(req.ID), req, time.Now()))
}

// write keeps what a transition made of a record.
func (h *handle) write(next *driver.Record, err error) error {
	if next != nil {
		h.tx.records[next.ID] = *next
	}
	return err
}

func (h *handle) Record(_ context.Context, req driver.RecordRequest) (res driver.RecordResult, err error) {
	h.tx.db.mu.Lock()
	defer h.tx.db.mu.Unlock()
	return res, h.insert(req.Claim, req.Complete)
}

func (h *handle) insert(claim driver.ClaimRequest, complete driver.CompleteRequest) error {
	if by := h.tx.db.busy[claim.ID]; by != nil && by != h.tx {
		return driver.ErrConflict
	}
	return h.write(transition.Record(h.tx.record(claim.ID), claim, complete, time.Now()))
}

func (h *handle) Get(_ context.Context, req driver.GetRequest) (driver.GetResult, error) {
	h.tx.db.mu.Lock()
	defer h.tx.db.mu.Unlock()
	rec := h.tx.record(req.ID)
	if rec == nil {
		return driver.GetResult{Now: time.Now()}, nil
	}
	return driver.GetResult{Found: true, Record: *rec, Now: time.Now()}, nil
}

func (h *handle) Renew(_ context.Context, req driver.RenewRequest) (res driver.RenewResult, err error) {
	h.tx.db.mu.Lock()
	defer h.tx.db.mu.Unlock()
	return res, h.write(transition.Renew(h.tx.record(req.ID), req, time.Now()))
}

func (h *handle) Savepoint(_ context.Context, name string) error {
	if h.tx.ended {
		return errEnded
	}
	h.tx.saved[name] = Tx{records: maps.Clone(h.tx.records), effects: maps.Clone(h.tx.effects)}
	return nil
}

func (h *handle) RollbackTo(_ context.Context, name string) error {
	if h.tx.ended {
		return errEnded
	}
	s := h.tx.saved[name]
	h.tx.records, h.tx.effects = maps.Clone(s.records), maps.Clone(s.effects)
	return nil
}

func (h *handle) ReleaseSavepoint(_ context.Context, name string) error {
	if h.tx.ended {
		return errEnded
	}
	delete(h.tx.saved, name)
	return nil
}

func (h *handle) Commit(_ context.Context, req driver.CommitRequest) (res driver.CommitResult, err error) {
	db := h.tx.db
	db.mu.Lock()
	defer db.mu.Unlock()
	if h.tx.ended {
		return res, errEnded
	}
	defer h.end()
	switch {
	case req.Record != nil:
		err = h.insert(*req.Record, *req.Complete)
	case req.Complete != nil:
		err = h.complete(*req.Complete)
	case req.SaveStep != nil:
		err = h.write(transition.SaveStep(h.tx.record(req.SaveStep.ID), *req.SaveStep, time.Now()))
	}
	if err != nil {
		return res, err
	}
	maps.Copy(db.records, h.tx.records)
	for name, n := range h.tx.effects {
		db.effects[name] += n
	}
	return res, nil
}

func (h *handle) Rollback(context.Context) error {
	h.tx.db.mu.Lock()
	defer h.tx.db.mu.Unlock()
	h.end()
	return nil
}

// end ends the transaction; what it holds is let go. The database is locked.
func (h *handle) end() {
	if h.tx.ended {
		return
	}
	h.tx.ended = true
	for _, id := range h.tx.claimed {
		delete(h.tx.db.busy, id)
	}
}
