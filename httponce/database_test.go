package httponce_test

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/transition"
)

// database is a tiny database with transactions: records and the effects of an application commit together. The
// claim of a key that an open transaction has is answered as in progress.
type database struct {
	everonce.Store // the calls outside of transactions: each a transaction of its own

	mu      sync.Mutex
	now     func() time.Time
	records map[everonce.RecordID]everonce.Record
	effects map[string]int
	busy    map[everonce.RecordID]*dbTx // keys of open transactions
}

func newDatabase() *database {
	return &database{
		now: time.Now, records: map[everonce.RecordID]everonce.Record{}, effects: map[string]int{},
		busy: map[everonce.RecordID]*dbTx{},
	}
}

// dbTx is one transaction: what it has written, not yet in the database.
type dbTx struct {
	db      *database
	records map[everonce.RecordID]everonce.Record
	effects map[string]int
	claimed []everonce.RecordID
	saved   map[string]dbTx
	ended   bool
}

var (
	errEnded    = errors.New("database: the transaction has ended")
	errDeadlock = errors.New("database: deadlock, the transaction was rolled back")
)

// add is a statement of the application's.
func (tx *dbTx) add(id string) error {
	if tx.ended {
		return errEnded
	}
	tx.effects[id]++
	return nil
}

// record reads through the transaction. The database is locked.
func (tx *dbTx) record(id everonce.RecordID) *everonce.Record {
	if rec, ok := tx.records[id]; ok {
		return &rec
	}
	if rec, ok := tx.db.records[id]; ok {
		return &rec
	}
	return nil
}

func (db *database) Begin(_ context.Context, req everonce.BeginRequest) (everonce.TxHandle[*dbTx], everonce.ClaimResult, error) {
	h := &dbHandle{&dbTx{db: db, records: map[everonce.RecordID]everonce.Record{}, effects: map[string]int{}, saved: map[string]dbTx{}}}
	if req.Claim == nil {
		return h, everonce.ClaimResult{}, nil
	}
	claim, err := h.Claim(context.Background(), *req.Claim)
	if err != nil || claim.Decision != everonce.DecideClaimed {
		return nil, claim, errors.Join(err, h.Rollback(context.Background()))
	}
	return h, claim, nil
}

func (db *database) Join(tx *dbTx) (everonce.TxHandle[*dbTx], error) { return &dbHandle{tx}, nil }

func (db *database) ClassifyTx(err error) everonce.TxErrorClass {
	if errors.Is(err, errDeadlock) {
		return everonce.TxErrorRetry
	}
	return everonce.TxErrorOther
}

// Get is what the engine reads outside of transactions.
func (db *database) Get(_ context.Context, req everonce.GetRequest) (everonce.GetResult, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	rec, ok := db.records[req.ID]
	return everonce.GetResult{Found: ok, Record: rec, Now: db.now()}, nil
}

type dbHandle struct{ tx *dbTx }

func (h *dbHandle) Tx() *dbTx { return h.tx }

func (h *dbHandle) Claim(_ context.Context, req everonce.ClaimRequest) (everonce.ClaimResult, error) {
	db := h.tx.db
	db.mu.Lock()
	defer db.mu.Unlock()
	if by := db.busy[req.ID]; by != nil && by != h.tx {
		return everonce.ClaimResult{Decision: everonce.DecideInProgress, Now: db.now()}, nil
	}
	next, res, err := transition.Claim(h.tx.record(req.ID), req, db.now())
	if next != nil {
		h.tx.records[req.ID] = *next
		h.tx.claimed = append(h.tx.claimed, req.ID)
		db.busy[req.ID] = h.tx
	}
	return res, err
}

func (h *dbHandle) Complete(_ context.Context, req everonce.CompleteRequest) error {
	h.tx.db.mu.Lock()
	defer h.tx.db.mu.Unlock()
	return h.complete(req)
}

func (h *dbHandle) complete(req everonce.CompleteRequest) error {
	if h.tx.ended {
		return errEnded
	}
	return h.write(transition.Complete(h.tx.record(req.ID), req, h.tx.db.now()))
}

// write keeps what a transition made of a record.
func (h *dbHandle) write(next *everonce.Record, err error) error {
	if next != nil {
		h.tx.records[next.ID] = *next
	}
	return err
}

func (h *dbHandle) Record(_ context.Context, claim everonce.ClaimRequest, complete everonce.CompleteRequest) error {
	h.tx.db.mu.Lock()
	defer h.tx.db.mu.Unlock()
	return h.insert(claim, complete)
}

func (h *dbHandle) insert(claim everonce.ClaimRequest, complete everonce.CompleteRequest) error {
	if by := h.tx.db.busy[claim.ID]; by != nil && by != h.tx {
		return everonce.ErrConflict
	}
	return h.write(transition.Record(h.tx.record(claim.ID), claim, complete, h.tx.db.now()))
}

func (h *dbHandle) Get(_ context.Context, req everonce.GetRequest) (everonce.GetResult, error) {
	h.tx.db.mu.Lock()
	defer h.tx.db.mu.Unlock()
	rec := h.tx.record(req.ID)
	if rec == nil {
		return everonce.GetResult{Now: h.tx.db.now()}, nil
	}
	return everonce.GetResult{Found: true, Record: *rec, Now: h.tx.db.now()}, nil
}

func (h *dbHandle) Renew(_ context.Context, req everonce.RenewRequest) error {
	h.tx.db.mu.Lock()
	defer h.tx.db.mu.Unlock()
	return h.write(transition.Renew(h.tx.record(req.ID), req, h.tx.db.now()))
}

func (h *dbHandle) Savepoint(_ context.Context, name string) error {
	if h.tx.ended {
		return errEnded
	}
	h.tx.saved[name] = dbTx{records: maps.Clone(h.tx.records), effects: maps.Clone(h.tx.effects)}
	return nil
}

func (h *dbHandle) RollbackTo(_ context.Context, name string) error {
	if h.tx.ended {
		return errEnded
	}
	s := h.tx.saved[name]
	h.tx.records, h.tx.effects = maps.Clone(s.records), maps.Clone(s.effects)
	return nil
}

func (h *dbHandle) ReleaseSavepoint(_ context.Context, name string) error {
	if h.tx.ended {
		return errEnded
	}
	delete(h.tx.saved, name)
	return nil
}

func (h *dbHandle) Commit(_ context.Context, req everonce.CommitRequest) (err error) {
	db := h.tx.db
	db.mu.Lock()
	defer db.mu.Unlock()
	if h.tx.ended {
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
	for id, n := range h.tx.effects {
		db.effects[id] += n
	}
	return nil
}

func (h *dbHandle) Rollback(context.Context) error {
	h.tx.db.mu.Lock()
	defer h.tx.db.mu.Unlock()
	h.end()
	return nil
}

// end ends the transaction; what it holds is let go. The database is locked.
func (h *dbHandle) end() {
	if h.tx.ended {
		return
	}
	h.tx.ended = true
	for _, id := range h.tx.claimed {
		delete(h.tx.db.busy, id)
	}
}

// count returns how often an effect of that name is committed.
func (db *database) count(name string) int {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.effects[name]
}

// open counts the keys that transactions hold.
func (db *database) open() int {
	db.mu.Lock()
	defer db.mu.Unlock()
	return len(db.busy)
}
