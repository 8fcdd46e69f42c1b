package consume_test

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/transition"
	"github.com/everonce/everonce/store/memstore"
)

// ledger is a small database: counters of the application, and records, which commit together. With PostgreSQL it
// would be a pgxstore. Writes outside of transactions go to a memstore that no test reads.
type ledger struct {
	everonce.Store
	down  atomic.Bool
	begun atomic.Int64 // transactions, those included that could not be
	// fails, where it is set, is what a call answers, once it has been made; classes says what that means.
	fails   func(method string) error
	classes map[error]driver.TxErrorClass

	mu      sync.Mutex
	rows    map[string]int
	records map[everonce.RecordID]driver.Record
	locks   map[everonce.RecordID]*ledgerTx
	commits int
}

func newLedger() *ledger {
	return &ledger{
		Store: memstore.New(nil), rows: map[string]int{},
		records: map[everonce.RecordID]driver.Record{}, locks: map[everonce.RecordID]*ledgerTx{},
	}
}

func (l *ledger) row(name string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rows[name]
}

// ledgerTx is a transaction, as the application uses it.
type ledgerTx struct {
	l       *ledger
	over    bool
	rows    map[string]int
	claimed map[everonce.RecordID]driver.Record
	done    map[everonce.RecordID]driver.Record
}

// Add adds one to a counter.
func (tx *ledgerTx) Add(name string) error {
	tx.rows[name]++
	return nil
}

func (l *ledger) Begin(ctx context.Context, req driver.BeginRequest) (driver.TxHandle[*ledgerTx], driver.ClaimResult, error) {
	l.begun.Add(1)
	if l.down.Load() {
		return nil, driver.ClaimResult{}, errDown
	}
	h := &ledgerHandle{tx: &ledgerTx{
		l: l, rows: map[string]int{}, claimed: map[everonce.RecordID]driver.Record{}, done: map[everonce.RecordID]driver.Record{},
	}}
	if err := l.answer("Begin"); err != nil {
		return nil, driver.ClaimResult{}, err
	}
	if req.Claim == nil {
		return h, driver.ClaimResult{}, nil
	}
	res, err := h.Claim(ctx, *req.Claim)
	if err != nil || res.Decision != driver.DecideClaimed {
		return nil, res, errors.Join(err, h.Rollback(ctx))
	}
	return h, res, nil
}

func (l *ledger) Join(context.Context, *ledgerTx) (driver.TxHandle[*ledgerTx], error) {
	return nil, driver.ErrOtherStore
}

func (l *ledger) answer(method string) error {
	if l.fails == nil {
		return nil
	}
	return l.fails(method)
}

func (l *ledger) ClassifyTx(err error) driver.TxErrorClass {
	for known, class := range l.classes {
		if errors.Is(err, known) {
			return class
		}
	}
	return driver.TxErrorOther
}

// ledgerHandle is a transaction, as the engine uses it. It has only what these tests need.
type ledgerHandle struct {
	driver.TxHandle[*ledgerTx]
	tx *ledgerTx
}

func (h *ledgerHandle) Tx() *ledgerTx { return h.tx }

func (h *ledgerHandle) Claim(_ context.Context, req driver.ClaimRequest) (driver.ClaimResult, error) {
	l := h.tx.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.locks[req.ID] != nil {
		return driver.ClaimResult{Decision: driver.DecideInProgress, Now: time.Now()}, nil
	}
	var rec *driver.Record
	if r, ok := l.records[req.ID]; ok {
		rec = &r
	}
	next, res, err := transition.Claim(rec, req, time.Now())
	if next != nil {
		l.locks[req.ID], h.tx.claimed[req.ID] = h.tx, *next
	}
	return res, err
}

func (h *ledgerHandle) Complete(_ context.Context, req driver.CompleteRequest) (res driver.CompleteResult, err error) {
	claimed := h.tx.claimed[req.ID]
	next, err := transition.Complete(&claimed, req, time.Now())
	if next != nil {
		h.tx.done[req.ID] = *next
	}
	return res, err
}

func (h *ledgerHandle) Commit(ctx context.Context, req driver.CommitRequest) (res driver.CommitResult, err error) {
	if req.Complete != nil {
		if _, err := h.Complete(ctx, *req.Complete); err != nil {
			return res, errors.Join(err, h.Rollback(ctx))
		}
	}
	l := h.tx.l
	l.mu.Lock()
	for name, n := range h.tx.rows {
		l.rows[name] += n
	}
	maps.Copy(l.records, h.tx.done)
	l.commits++
	l.mu.Unlock()
	return res, errors.Join(h.Rollback(ctx), l.answer("Commit"))
}

func (h *ledgerHandle) Rollback(context.Context) error {
	h.tx.l.mu.Lock()
	defer h.tx.l.mu.Unlock()
	if !h.tx.over {
		h.tx.over = true
		for id := range h.tx.claimed {
			delete(h.tx.l.locks, id)
		}
	}
	return nil
}
