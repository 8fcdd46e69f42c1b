// Package mapdb is a tiny database with transactions, for tests: records and the effects of an application commit together.
package mapdb

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/transition"
)

// DB is an [everonce.TxStore]. The claim of a key that an open transaction has is answered as in progress.
type DB struct {
	everonce.Store // nil: outside of transactions there are Claim, Release and Get alone

	mu      sync.Mutex
	records map[everonce.RecordID]everonce.Record
	effects map[string]int
	busy    map[everonce.RecordID]*Tx // keys of open transactions
}

// New returns an empty database.
func New() *DB {
	return &DB{records: map[everonce.RecordID]everonce.Record{}, effects: map[string]int{}, busy: map[everonce.RecordID]*Tx{}}
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
	records map[everonce.RecordID]everonce.Record
	effects map[string]int
	claimed []everonce.RecordID
	saved   map[string]Tx
	ended   bool
	byWork  bool // the work has ended it
}

var errEnded = errors.New("mapdb: the transaction has ended")

// errNotMine is what a transaction answers that the work has ended by itself.
var errNotMine = fmt.Errorf("%w: the work has ended the transaction", everonce.ErrTxDoomed)

// ErrDeadlock is what work returns that met one: the transaction was rolled back, and may be run again.
var ErrDeadlock = errors.New("mapdb: deadlock, the transaction was rolled back")

// Add is a statement of the application's: one more effect of that name.
func (tx *Tx) Add(name string) error {
	if tx.ended {
		return errEnded
	}
	tx.effects[name]++
	return nil
}

// CommitByStatement commits behind everonce's back, as the text of a statement can: the effects, and no record.
func (tx *Tx) CommitByStatement() {
	tx.db.mu.Lock()
	defer tx.db.mu.Unlock()
	for name, n := range tx.effects {
		tx.db.effects[name] += n
	}
	(&handle{tx}).end()
	tx.byWork = true
}

// record reads through the transaction. The database is locked.
func (tx *Tx) record(id everonce.RecordID) *everonce.Record {
	if rec, ok := tx.records[id]; ok {
		return &rec
	}
	if rec, ok := tx.db.records[id]; ok {
		return &rec
	}
	return nil
}

// Begin implements [everonce.TxStore].
func (db *DB) Begin(_ context.Context, req everonce.BeginRequest) (everonce.TxHandle[*Tx], everonce.ClaimResult, error) {
	h := &handle{&Tx{db: db, records: map[everonce.RecordID]everonce.Record{}, effects: map[string]int{}, saved: map[string]Tx{}}}
	if req.Claim == nil {
		return h, everonce.ClaimResult{}, nil
	}
	claim, err := h.Claim(context.Background(), *req.Claim)
	if err != nil || claim.Decision != everonce.DecideClaimed {
		return nil, claim, errors.Join(err, h.Rollback(context.Background()))
	}
	return h, claim, nil
}

// Join implements [everonce.TxStore].
func (db *DB) Join(tx *Tx) (everonce.TxHandle[*Tx], error) { return &handle{tx}, nil }

// ClassifyTx implements [everonce.TxStore].
func (db *DB) ClassifyTx(err error) everonce.TxErrorClass {
	switch {
	case errors.Is(err, ErrDeadlock):
		return everonce.TxErrorRetry
	case errors.Is(err, errNotMine):
		return everonce.TxErrorEnded
	}
	return everonce.TxErrorOther
}

// Claim is for what is recorded outside of transactions.
func (db *DB) Claim(_ context.Context, req everonce.ClaimRequest) (res everonce.ClaimResult, err error) {
	return res, db.change(req.ID, func(rec *everonce.Record) (next *everonce.Record, err error) {
		next, res, err = transition.Claim(rec, req, time.Now())
		return next, err
	})
}

// Release ends such a claim.
func (db *DB) Release(_ context.Context, req everonce.ReleaseRequest) (res everonce.ReleaseResult, err error) {
	return res, db.change(req.ID, func(rec *everonce.Record) (next *everonce.Record, err error) {
		next, res, err = transition.Release(rec, req, time.Now())
		return next, err
	})
}

func (db *DB) change(id everonce.RecordID, to func(rec *everonce.Record) (*everonce.Record, error)) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	var rec *everonce.Record
	if r, ok := db.records[id]; ok {
		rec = &r
	}
	next, err := to(rec)
	if next != nil {
		db.records[id] = *next
	}
	return err
}

// Get is what the engine reads outside of transactions.
func (db *DB) Get(_ context.Context, req everonce.GetRequest) (everonce.GetResult, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	rec, ok := db.records[req.ID]
	return everonce.GetResult{Found: ok, Record: rec, Now: time.Now()}, nil
}

// handle is an [everonce.TxHandle].
type handle struct{ tx *Tx }

func (h *handle) Tx() *Tx { return h.tx }

func (h *handle) Claim(_ context.Context, req everonce.ClaimRequest) (everonce.ClaimResult, error) {
	db := h.tx.db
	db.mu.Lock()
	defer db.mu.Unlock()
	if by := db.busy[req.ID]; by != nil && by != h.tx {
		return everonce.ClaimResult{Decision: everonce.DecideInProgress, Now: time.Now()}, nil
	}
	next, res, err := transition.Claim(h.tx.record(req.ID), req, time.Now())
	if next != nil {
		h.tx.records[req.ID] = *next
		h.tx.claimed = append(h.tx.claimed, req.ID)
		db.busy[req.ID] = h.tx
	}
	return res, err
}

func (h *handle) Complete(_ context.Context, req everonce.CompleteRequest) error {
	h.tx.db.mu.Lock()
	defer h.tx.db.mu.Unlock()
	return h.complete(req)
}

func (h *handle) complete(req everonce.CompleteRequest) error {
	if h.tx.ended {
		return errEnded
	}
	return h.write(transition.Complete(h.tx.record(req.ID), req, time.Now()))
}

// write keeps what a transition made of a record.
func (h *handle) write(next *everonce.Record, err error) error {
	if next != nil {
		h.tx.records[next.ID] = *next
	}
	return err
}

func (h *handle) Record(_ context.Context, claim everonce.ClaimRequest, complete everonce.CompleteRequest) error {
	h.tx.db.mu.Lock()
	defer h.tx.db.mu.Unlock()
	return h.insert(claim, complete)
}

func (h *handle) insert(claim everonce.ClaimRequest, complete everonce.CompleteRequest) error {
	if by := h.tx.db.busy[claim.ID]; by != nil && by != h.tx {
		return everonce.ErrConflict
	}
	return h.write(transition.Record(h.tx.record(claim.ID), claim, complete, time.Now()))
}

func (h *handle) Get(_ context.Context, req everonce.GetRequest) (everonce.GetResult, error) {
	h.tx.db.mu.Lock()
	defer h.tx.db.mu.Unlock()
	rec := h.tx.record(req.ID)
	if rec == nil {
		return everonce.GetResult{Now: time.Now()}, nil
	}
	return everonce.GetResult{Found: true, Record: *rec, Now: time.Now()}, nil
}

func (h *handle) Renew(_ context.Context, req everonce.RenewRequest) error {
	h.tx.db.mu.Lock()
	defer h.tx.db.mu.Unlock()
	return h.write(transition.Renew(h.tx.record(req.ID), req, time.Now()))
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

func (h *handle) Commit(_ context.Context, req everonce.CommitRequest) (err error) {
	db := h.tx.db
	db.mu.Lock()
	defer db.mu.Unlock()
	switch {
	case h.tx.byWork:
		return errNotMine
	case h.tx.ended:
		return errEnded
	}
	defer h.end()
	switch {
	case req.Record != nil:
		err = h.insert(*req.Record, *req.Complete)
	case req.Complete != nil:
		err = h.complete(*req.Complete)
	}
	if err != nil {
		return err
	}
	maps.Copy(db.records, h.tx.records)
	for name, n := range h.tx.effects {
		db.effects[name] += n
	}
	return nil
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
