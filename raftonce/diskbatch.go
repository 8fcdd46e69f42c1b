package raftonce

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
)

// errUndo rolls the transaction of a batch back after a request has failed.
var errUndo = errors.New("raftonce: a request has failed")

// diskBatch applies entries in a transaction. bbolt has no savepoints. So when a request fails, the transaction is
// rolled back, and a new one executes again the requests before it; the sessions have their results.
type diskBatch struct {
	fsm     *DiskFSM
	logs    []*raft.Log
	next    int // index in logs
	answers []any
	done    []execution
	journal []record
}

type execution struct{ payload, result []byte }

// run applies the rest of the batch in a transaction. The error is errUndo, or the database's.
func (b *diskBatch) run(tx *bbolt.Tx) error {
	for _, e := range b.done {
		if result := recorded(b.fsm.fn(tx, e.payload)); !bytes.Equal(result, e.result) {
			return fmt.Errorf("the state machine is not deterministic: it answers %q, and answered %q", result, e.result)
		}
	}
	for b.next < len(b.logs) {
		log := b.logs[b.next]
		b.next++
		if log.Type != raft.LogCommand {
			continue
		}
		if err := b.apply(tx, log); err != nil {
			return err
		}
	}
	return b.fsm.journal.add(tx, b.fsm.machine, b.journal, max(b.fsm.applied, b.fsm.handed))
}

// apply applies the entry before next.
func (b *diskBatch) apply(tx *bbolt.Tx, log *raft.Log) error {
	stamp, c, err := b.fsm.read(log)
	if err != nil {
		b.answers[b.next-1] = err
		return nil
	}
	kept := c // the command in the form that the journal keeps
	kept.Payload = nil
	answer := b.fsm.machine.Begin(stamp, &c)
	if answer.Execute {
		result := recorded(b.fsm.fn(tx, c.Payload))
		answer = b.fsm.machine.Record(&c, result)
		kept.Payload = result[:min(len(result), b.fsm.machine.Config().MaxResult+1)]
		if result[0] == failed {
			err = errUndo
		} else {
			b.done = append(b.done, execution{c.Payload, result})
		}
	}
	journaled, encoding := newRecord(log.Index, stamp, &kept)
	if encoding != nil {
		return encoding
	}
	b.answers[b.next-1] = answer
	b.journal = append(b.journal, journaled)
	return err
}
