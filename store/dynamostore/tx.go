package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/everonce/everonce/driver"
)

// MaxItems is the largest number of the application's items in a transaction of one operation: DynamoDB takes a
// hundred, and the record is one of them. Each further operation of everonce.DoTx in the same transaction takes one
// more. All items together may have 4 MB.
const MaxItems = maxWrites - 1

const maxWrites = 100

// Tx collects the items that a transaction writes. Nothing is sent before the commit, which is one TransactWriteItems:
// it makes all of the writes, with the record, or none. So the work cannot read what it has written. A condition that
// is false fails the commit with a [ConditionError]. An item may occur only once.
//
// It is not safe for concurrent use.
type Tx struct {
	s       *Store
	items   []types.TransactWriteItem
	records map[driver.RecordID]pending
	marks   map[string]mark
	ended   bool
}

// mark is what a savepoint keeps.
type mark struct {
	items   int
	records map[driver.RecordID]pending
}

// pending is a record in a transaction: the item as it was seen, the decision, and the record to write.
type pending struct {
	seen      attributes
	decisions []decision
	next      *driver.Record
}

var (
	errEnded   = errors.New("dynamostore: the transaction has ended")
	errTooMany = fmt.Errorf("dynamostore: %w: a transaction has at most %d items", driver.ErrInvalidArgument, maxWrites)
)

// NewTransaction begins a transaction of the caller's, for everonce.DoTx. It sends nothing.
func (s *TxStore) NewTransaction() *Tx { return s.newTx() }

func (s *Store) newTx() *Tx {
	return &Tx{s: s, records: make(map[driver.RecordID]pending), marks: make(map[string]mark)}
}

// Put adds an item to be written.
func (t *Tx) Put(put types.Put) error { return t.Add(types.TransactWriteItem{Put: &put}) }

// Update adds an update of an item.
func (t *Tx) Update(update types.Update) error {
	return t.Add(types.TransactWriteItem{Update: &update})
}

// Delete adds an item to be deleted.
func (t *Tx) Delete(del types.Delete) error { return t.Add(types.TransactWriteItem{Delete: &del}) }

// Check adds a condition on an item that the transaction does not write.
func (t *Tx) Check(check types.ConditionCheck) error {
	return t.Add(types.TransactWriteItem{ConditionCheck: &check})
}

// Add adds items, or none of them if there are too many: [driver.ErrInvalidArgument].
func (t *Tx) Add(items ...types.TransactWriteItem) error {
	switch {
	case t.ended:
		return errEnded
	case len(t.items)+len(items) > MaxItems:
		return errTooMany
	}
	t.items = append(t.items, items...)
	return nil
}

// Commit commits a transaction of the caller's. Errors: [driver.ErrConflict] if another transaction had the key of an
// operation first; [ConditionError]; and the errors of the server. After an error nothing was written, unless the
// answer was lost: everonce.DoTx of the same key in another transaction tells.
func (t *Tx) Commit(ctx context.Context) error {
	if t.ended {
		return errEnded
	}
	return t.commit(ctx)
}

// Rollback ends the transaction. After Commit it does nothing.
func (t *Tx) Rollback() { t.ended = true }

// decide decides on a record as the transaction sees it, and keeps the record to write.
func (t *Tx) decide(ctx context.Context, id driver.RecordID, decide decision) error {
	if t.ended {
		return errEnded
	}
	p, known := t.records[id]
	if !known {
		seen, err := t.s.get(ctx, &id)
		if err != nil {
			return err
		}
		p.seen = seen
	}
	return t.keep(id, p, decide)
}

func (t *Tx) keep(id driver.RecordID, p pending, decide decision) error {
	rec := p.next
	if rec == nil {
		var err error
		if rec, err = p.seen.record(); err != nil {
			return err
		}
	}
	next, err := decide(rec, t.s.now())
	if err != nil || next == nil {
		return err
	}
	t.records[id] = pending{seen: p.seen, next: next, decisions: append(slices.Clip(p.decisions), decide)}
	return nil
}

// again decides anew on an item that has changed since it was seen.
func (p *pending) again(found attributes, now time.Time) error {
	rec, err := found.record()
	for _, decide := range p.decisions {
		if err != nil {
			return err
		}
		if next, refused := decide(rec, now); refused != nil {
			err = refused
		} else if next != nil {
			rec = next
		}
	}
	p.seen, p.next = found, rec
	return err
}

func (t *Tx) save(name string) { t.marks[name] = mark{len(t.items), maps.Clone(t.records)} }

func (t *Tx) rollbackTo(name string) error {
	m, ok := t.marks[name]
	if !ok {
		return fmt.Errorf("dynamostore: %w: there is no such savepoint", driver.ErrInvalidArgument)
	}
	t.items, t.records = t.items[:m.items], maps.Clone(m.records)
	return nil
}
