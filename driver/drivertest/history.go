package drivertest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// historyChecks let clients deliver the same operations at once, over processes that fail and owners that are
// overtaken, and ask a linearizability checker whether one write-once register per key could have given all their
// answers.
func historyChecks() []check {
	return []check{
		{name: "History/OfDoIsLinearizable", run: func(e *env) { e.history(e.deliverDo) }},
	}
}

// delivery is one call of a client, as the checker sees it.
type delivery struct {
	key everonce.Key
	// own is the value that the call's work gives.
	own string
}

// reply is its answer.
type reply struct {
	outcome everonce.Outcome // 0 if the process died before it answered
	value   string
}

// register is the model of a key: empty until an operation is completed, and that value ever after. A call whose
// end was not seen may have completed its operation at any later time, or never.
func register() porcupine.Model {
	nm := porcupine.NondeterministicModel{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			byKey := make(map[everonce.Key][]porcupine.Operation)
			for _, op := range history {
				k := op.Input.(delivery).key
				byKey[k] = append(byKey[k], op)
			}
			parts := make([][]porcupine.Operation, 0, len(byKey))
			for _, p := range byKey {
				parts = append(parts, p)
			}
			return parts
		},
		Init: func() []any { return []any{""} },
		Step: func(state, input, output any) []any {
			now, in, out := state.(string), input.(delivery), output.(reply)
			switch out.outcome {
			case everonce.Executed:
				if now == "" && out.value == in.own {
					return []any{in.own}
				}
			case everonce.Replayed:
				if now != "" && now == out.value {
					return []any{now}
				}
			case everonce.InProgress, everonce.Failed:
				if now == "" {
					return []any{now}
				}
			case everonce.LeaseLost, everonce.StoreFailed:
				return []any{now}
			case 0, everonce.NotRecorded, everonce.Unknown:
				if now == "" {
					return []any{now, in.own}
				}
				return []any{now}
			}
			return nil
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%v → %v", input, output) },
	}
	return nm.ToModel()
}

// history runs clients against each other and checks their answers.
func (e *env) history(deliver func(p *process, d delivery) (reply, error)) {
	e.Helper()
	e.histories(1, func(p *process, ds []delivery) ([]reply, error) {
		answer, err := deliver(p, ds[0])
		return []reply{answer}, err
	})
}

// histories is history for deliveries that come several at a time, of neighbouring keys.
func (e *env) histories(together int, deliver func(p *process, ds []delivery) ([]reply, error)) {
	e.Helper()
	const clients, turns, keys = 8, 36, 12
	quick := []fault{failBefore, failAfter, dieBefore, dieAfter}
	seed := rand.Uint64() //nolint:gosec // for choices, not for secrets
	e.Logf("seed %d", seed)
	all := make([]everonce.Key, keys)
	for i := range all {
		all[i] = e.key()
	}
	var mu sync.Mutex
	var ops []porcupine.Operation
	started := time.Now()
	each(clients, func(client int) {
		rng := rand.New(rand.NewPCG(seed, uint64(client))) //nolint:gosec // a seeded choice
		for turn := range turns {
			// They move over the keys together, so that they collide at each.
			ds := make([]delivery, together)
			for i, from := range rng.Perm(together) {
				ds[i] = delivery{key: all[min(turn/3+rng.IntN(2)+from, keys-1)], own: fmt.Sprintf("%d.%d.%d", client, turn, i)}
			}
			p := newProcess(-1, noFault)
			if rng.IntN(4) == 0 {
				p = newProcess(rng.IntN(5), quick[rng.IntN(len(quick))])
			}
			called := time.Since(started)
			answers, err := deliver(p, ds)
			returned := int64(time.Since(started))
			if err != nil {
				e.Errorf("seed %d: %v: %v", seed, answers, err)
			}
			for i, d := range ds {
				answer, end := answers[i], returned
				if answer.outcome == 0 || answer.outcome == everonce.NotRecorded || answer.outcome == everonce.Unknown {
					end = math.MaxInt64
				}
				mu.Lock()
				ops = append(ops, porcupine.Operation{ClientId: client, Input: d, Call: int64(called), Output: answer, Return: end})
				mu.Unlock()
				if answer.outcome == everonce.InProgress && rng.IntN(2) == 0 {
					e.overtake(d.key)
				}
			}
		}
	})
	executed := make(map[everonce.Key]int)
	for _, op := range ops {
		if out := op.Output.(reply); out.outcome == everonce.Executed {
			executed[op.Input.(delivery).key]++
		}
	}
	for _, n := range executed {
		if n > 1 {
			e.Errorf("seed %d: %d calls of one key returned executed", seed, n)
		}
	}
	if res := porcupine.CheckOperationsTimeout(register(), answerable(ops, e.caps), hung); res != porcupine.Ok {
		e.Errorf("seed %d: the history of %d calls is not linearizable: %v", seed, len(ops), res)
		for _, op := range ops {
			e.Logf("client %d: %v to %v: %v → %v", op.ClientId, time.Duration(op.Call), time.Duration(op.Return), op.Input, op.Output)
		}
	}
}

// answerable leaves out the calls whose end was not seen and whose value was never returned: they can always be
// taken for calls that did nothing, and the checker would try all their orders. It also leaves out calls in
// progress, if the store may answer so at any time.
func answerable(ops []porcupine.Operation, caps Capabilities) (left []porcupine.Operation) {
	seen := make(map[delivery]bool)
	for _, op := range ops {
		seen[delivery{op.Input.(delivery).key, op.Output.(reply).value}] = true
	}
	for _, op := range ops {
		if caps.BusyThoughDone && op.Output.(reply).outcome == everonce.InProgress {
			continue
		}
		if op.Return != math.MaxInt64 || seen[op.Input.(delivery)] {
			left = append(left, op)
		}
	}
	return left
}

// overtake lets the lease of the key's owner run out, alive or not.
func (e *env) overtake(k everonce.Key) {
	got, err := e.s.Get(e.ctx, driver.GetRequest{ID: k.RecordID()})
	if err != nil {
		e.Errorf("Get: %v", err)
		return
	}
	if !got.Found || got.Record.State != driver.StateClaimed {
		return
	}
	_, err = e.s.Renew(e.ctx, driver.RenewRequest{ID: got.Record.ID, Token: got.Record.Token, Nonce: got.Record.Nonce, Lease: time.Millisecond, Lifetime: forLong})
	if err != nil && !errors.Is(err, driver.ErrLeaseLost) {
		e.Errorf("Renew: %v", err)
	}
	e.pass(time.Millisecond)
}

// deliverDo brings an operation to a process in guarded mode, under Reexecute.
func (e *env) deliverDo(p *process, d delivery) (answer reply, err error) {
	r, err := everonce.NewReceiver(&faultStore{e.s, p}, everonce.Reexecute, historyOptions())
	if err != nil {
		return answer, err
	}
	p.run(func() {
		res, doErr := everonce.Do(e.ctx, r, d.key, func(context.Context, *everonce.Attempt) (string, error) {
			runtime.Gosched()
			return d.own, p.do("effect", func() error { return nil })
		}, sumA)
		if !p.isGone() {
			answer, err = replyOf(res, doErr)
		}
	})
	return answer, err
}

func historyOptions() *everonce.Options {
	return &everonce.Options{Lease: long, Lifetime: forLong, Codec: everonce.Raw(), Owner: "suite"}
}

// replyOf reads an answer. An outcome that no call of a history may have is an error.
func replyOf(res everonce.Result[string], err error) (reply, error) {
	answer := reply{outcome: res.Outcome, value: res.Value}
	switch res.Outcome {
	case everonce.Executed, everonce.Replayed:
		return answer, err
	case everonce.Failed, everonce.InProgress, everonce.LeaseLost, everonce.StoreFailed, everonce.NotRecorded, everonce.Unknown:
		if err == nil {
			return answer, errors.New("an outcome without a value has no error")
		}
		return answer, nil
	}
	return answer, fmt.Errorf("unexpected outcome: %w", err)
}
