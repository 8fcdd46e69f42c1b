package raftonce

import (
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/everonce/everonce/session"
)

// ApplyBatch applies entries. It passes many of them to the state machine's ApplyBatch in one call, if it has that
// method.
//
// Raft cuts the log into batches differently on each node, and the state must not depend on it. Whether a request is
// accepted depends on the earlier results of its session. So a second request of one session in a batch waits until the
// first is recorded.
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

// batch collects the requests to be executed.
type batch struct {
	fsm     *FSM
	inner   raft.BatchingFSM
	answers []any
	logs    []*raft.Log
	at      []int              // index in answers, for each of logs
	begun   []*session.Command // for each of logs, nil for a configuration
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

// flush executes the collected requests.
func (b *batch) flush() {
	if len(b.logs) == 0 {
		return
	}
	results := b.inner.ApplyBatch(b.logs)
	if len(results) != len(b.logs) { // the results cannot be matched to the entries
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
