package raftonce

import (
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/everonce/everonce/session"
)

// ApplyBatch applies entries, with one call of the state machine's ApplyBatch for many of them if it has that.
//
// How raft cuts the log into batches differs between nodes, and may not be seen in the state. Whether a request is
// accepted depends on the results before it in its session. So a second request of one session in a batch waits until
// the first is recorded.
func (f *FSM) ApplyBatch(logs []*raft.Log) []any {
	answers := make([]any, len(logs))
	batching, ok := f.inner.(raft.BatchingFSM)
	if !ok {
		for i, log := range logs {
			switch log.Type {
			case raft.LogCommand:
				answers[i] = f.Apply(log)
			case raft.LogConfiguration:
				f.StoreConfiguration(log.Index, raft.DecodeConfiguration(log.Data))
			}
		}
		return answers
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	b := batch{fsm: f, inner: batching, answers: answers, open: map[session.ID]bool{}}
	for i, log := range logs {
		b.add(i, log)
	}
	b.flush()
	f.publish()
	return answers
}

// batch gathers what is to be executed.
type batch struct {
	fsm     *FSM
	inner   raft.BatchingFSM
	answers []any
	logs    []*raft.Log
	at      []int              // of each of logs, in answers
	begun   []*session.Command // of each of logs, nil for a configuration
	open    map[session.ID]bool
}

func (b *batch) add(i int, log *raft.Log) {
	if log.Type != raft.LogCommand {
		b.push(i, log, nil)
		return
	}
	stamp, c, err := b.fsm.read(log)
	if err != nil {
		b.answers[i] = err
		return
	}
	if b.open[c.Session] {
		b.flush()
	}
	answer := b.fsm.machine.Begin(stamp, &c)
	if !answer.Execute {
		b.answers[i] = answer
		return
	}
	b.open[c.Session] = true
	b.push(i, request(log, &c), &c)
}

func (b *batch) push(i int, log *raft.Log, c *session.Command) {
	b.logs, b.at, b.begun = append(b.logs, log), append(b.at, i), append(b.begun, c)
}

// flush executes what was gathered.
func (b *batch) flush() {
	if len(b.logs) == 0 {
		return
	}
	results := b.inner.ApplyBatch(b.logs)
	if len(results) != len(b.logs) { // nobody knows which is whose
		panic(fmt.Sprintf("raftonce: ApplyBatch of the state machine returned %d results for %d entries", len(results), len(b.logs)))
	}
	for k, got := range results {
		if c := b.begun[k]; c != nil {
			got = b.fsm.machine.Record(c, b.fsm.result(got))
		}
		b.answers[b.at[k]] = got
	}
	b.logs, b.at, b.begun = nil, nil, nil
	clear(b.open)
}
