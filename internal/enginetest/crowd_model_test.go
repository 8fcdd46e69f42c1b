package enginetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// crowdPlan is one run of the model: who calls when, what is wrong meanwhile, and what others do to the records.
type crowdPlan struct {
	Policy       everonce.Policy
	Transactions bool
	Optimistic   bool
	Lease        time.Duration
	Word         wordKind
	Stop         time.Duration // when all callers' contexts end; 0 is never
	Calls        []crowdCall
	Troubles     []trouble
	Acts         []crowdAct
}

type crowdCall struct {
	Key, Receiver, Print int
	At, Wait, Gone       time.Duration // Gone of 0: the context does not end
	Takes                time.Duration
	End                  string
	Effect               bool // of an end that tells nothing
	Refuses              bool // in place of running again
}

// crowdAct is what is done to a record from beside.
type crowdAct struct {
	Key    int
	At     time.Duration
	What   string
	Lease  time.Duration // of one that dies
	Effect bool
}

const crowdKeys = 3

func drawCrowd(t *rapid.T) *crowdPlan {
	ms := func(most int, what string) time.Duration {
		return time.Duration(rapid.IntRange(0, most).Draw(t, what)) * time.Millisecond
	}
	p := &crowdPlan{
		Policy:       rapid.SampledFrom(policies).Draw(t, "policy"),
		Transactions: rapid.IntRange(0, 3).Draw(t, "mode") == 3,
		Optimistic:   rapid.Bool().Draw(t, "optimistic"),
		Lease:        2*time.Second + ms(8000, "lease"),
		Word:         wordKind(rapid.IntRange(0, int(wordKinds)-1).Draw(t, "word")), //nolint:gosec // it is small
	}
	if rapid.IntRange(0, 4).Draw(t, "stops") == 4 {
		p.Stop = ms(60_000, "stop")
	}
	var bursts []time.Duration
	for range 4 {
		bursts = append(bursts, ms(50_000, "burst"))
	}
	p.Calls = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) crowdCall {
		c := crowdCall{
			Key: rapid.IntRange(0, crowdKeys-1).Draw(t, "key"), Receiver: rapid.IntRange(0, 1).Draw(t, "receiver"),
			At:    rapid.SampledFrom(bursts).Draw(t, "burst") + rapid.SampledFrom([]time.Duration{0, 0, time.Millisecond, 300 * time.Millisecond}).Draw(t, "after"),
			Wait:  rapid.SampledFrom([]time.Duration{0, 100 * time.Millisecond, 3 * time.Second, time.Minute, time.Hour}).Draw(t, "wait"),
			Takes: rapid.SampledFrom([]time.Duration{0, time.Millisecond, 700 * time.Millisecond, 7 * time.Second, 12 * time.Second}).Draw(t, "takes"),
			End:   rapid.SampledFrom([]string{"done", "done", "refused", "not done", "not done", "not done", "unknown", "panic", "goexit"}).Draw(t, "end"),
		}
		if rapid.IntRange(0, 7).Draw(t, "other fingerprint") == 0 {
			c.Print = 1
		}
		if rapid.IntRange(0, 3).Draw(t, "goes") == 0 {
			c.Gone = time.Millisecond + ms(20_000, "gone")
		}
		c.Effect, c.Refuses = rapid.Bool().Draw(t, "effect"), rapid.Bool().Draw(t, "refuses") && p.Policy == everonce.Reexecute && !p.Transactions
		return c
	}), 1, 60).Draw(t, "calls")
	p.Acts = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) crowdAct {
		return crowdAct{
			Key: rapid.IntRange(0, crowdKeys-1).Draw(t, "key"), At: ms(60_000, "at"),
			What:  rapid.SampledFrom([]string{"dies", "dies", "settles", "forces", "purges", "forgets"}).Draw(t, "act"),
			Lease: time.Second + ms(20_000, "lease"), Effect: rapid.Bool().Draw(t, "effect"),
		}
	}), 0, 6).Draw(t, "acts")
	if rapid.Bool().Draw(t, "troubled") {
		p.Troubles = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) trouble {
			from := ms(60_000, "from")
			kind := troubleKind(rapid.IntRange(0, int(troubleKinds)-1).Draw(t, "kind")) //nolint:gosec // it is small
			return trouble{from, from + ms(6000, "for"), kind, ms(8000, "by")}
		}), 1, 3).Draw(t, "troubles")
	}
	return p
}

// span is when something held.
type span struct {
	from, to time.Time
	receiver int // of the attempt, or noReceiver
}

// noReceiver stands for a process that died, or a settlement.
const noReceiver = -1

// crowdModel is one run and its history.
type crowdModel struct {
	plan     *crowdPlan
	store    *modelStore
	word     *wordy // nil if the store sends no notifications
	guarded  [2]*everonce.Receiver
	txs      [2]*everonce.TxReceiver[*mapTx]
	start    time.Time
	strays   sync.WaitGroup
	mu       sync.Mutex
	problems []string
	asks     map[[2]int][]time.Time // by key and receiver
	events   [crowdKeys][]time.Time // arrivals, exits and ends: what makes somebody ask
	busy     [crowdKeys][]span
	waits    [crowdKeys][]span
	grants   [crowdKeys][]span    // claims that got the record, at their from
	nonces   map[int]driver.Nonce // the latest of each call
	total    int
	running  [crowdKeys]int
	effects  [crowdKeys][]string
	more     [crowdKeys]int // effects that were allowed from beside
	forced   [crowdKeys]bool
	forgot   [crowdKeys]bool
	dark     [crowdKeys]bool // an attempt ended in the unknown
	final    [crowdKeys]string
	prints   [crowdKeys][2]bool
}

func (m *crowdModel) fail(format string, args ...any) {
	m.problems = append(m.problems, fmt.Sprintf("%v: ", time.Since(m.start))+fmt.Sprintf(format, args...))
}

func (m *crowdModel) tell(id everonce.RecordID) {
	if m.word != nil {
		m.word.tell(id)
	}
}

type callNumber struct{}

// asked notes a claim. One of too many is refused for good, so that a loop without a pause ends.
func (m *crowdModel) asked(ctx context.Context, n driver.Nonce) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.total++; m.total > 20_000 {
		if m.total == 20_001 {
			m.fail("the store was asked 20 000 times")
		}
		return driver.ErrCorruptRecord
	}
	i, ok := ctx.Value(callNumber{}).(int)
	if !ok {
		return nil
	}
	c := &m.plan.Calls[i]
	at := [2]int{c.Key, c.Receiver}
	m.asks[at] = append(m.asks[at], time.Now())
	if n != (driver.Nonce{}) {
		if was, ok := m.nonces[i]; ok && was != n {
			m.fail("call %d claims by two nonces", i)
		}
		m.nonces[i] = n
	}
	return nil
}

func crowdKey(k int) everonce.Key { return keyOf(fmt.Sprint("k", k)) }

// effect is an effect of a key, in the name of value.
func (m *crowdModel) effect(k int, value string) {
	m.effects[k] = append(m.effects[k], value)
	if m.final[k] != "" && !m.forgot[k] && !m.forced[k] {
		m.fail("key %d took effect as %q when it had ended as %q", k, value, m.final[k])
	}
}

// attempt does the work of call i until its end, or until its context ends.
func (m *crowdModel) attempt(ctx context.Context, i int) (value string, err error) {
	c := &m.plan.Calls[i]
	m.mu.Lock()
	if m.running[c.Key]++; m.running[c.Key] > 1 && !m.forced[c.Key] && (!m.plan.Transactions || !m.plan.Optimistic) {
		m.fail("two attempts of key %d at once", c.Key)
	}
	m.prints[c.Key][c.Print] = true
	m.mu.Unlock()
	_ = pauseIn(ctx, c.Takes)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running[c.Key]--
	if ctx.Err() != nil {
		return "", everonce.NotDone(context.Cause(ctx))
	}
	value = fmt.Sprintf("%d/%d/%d", c.Key, c.Print, i)
	silent := c.End != "done" && c.End != "refused" && c.End != "not done"
	if !m.plan.Transactions && (c.End == "done" || silent && c.Effect) {
		m.effect(c.Key, value)
	}
	m.dark[c.Key] = m.dark[c.Key] || silent
	switch c.End {
	case "done":
		return value, nil
	case "refused":
		return "", everonce.Permanent("refused "+value, nil, nil)
	case "not done":
		return "", everonce.NotDone(errWork)
	case "panic":
		panic("x")
	case "goexit":
		runtime.Goexit()
	}
	return "", errWork
}

// ask is a reconciler that tells the truth.
func (m *crowdModel) ask(k int) func(context.Context, everonce.Abandoned) (everonce.Verdict[string], error) {
	return func(context.Context, everonce.Abandoned) (everonce.Verdict[string], error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if e := m.effects[k]; len(e) > 0 {
			return everonce.Happened(e[len(e)-1]), nil
		}
		return everonce.NotHappened[string](), nil
	}
}

// call makes call i, and checks its answer.
func (m *crowdModel) call(ctx context.Context, i int) {
	c := &m.plan.Calls[i]
	time.Sleep(c.At)
	ctx = context.WithValue(ctx, callNumber{}, i)
	if c.Gone > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.Gone)
		defer cancel()
	}
	start := time.Now()
	m.mu.Lock()
	m.events[c.Key] = append(m.events[c.Key], start)
	m.prints[c.Key][c.Print] = true
	m.mu.Unlock()
	var worked time.Time // when its own work began
	var res everonce.Result[string]
	err := errors.New("it did not return")
	defer func() {
		_ = recover()
		m.mu.Lock()
		defer m.mu.Unlock()
		now := time.Now()
		m.events[c.Key] = append(m.events[c.Key], now)
		until := now
		if !worked.IsZero() {
			until = worked
			m.busy[c.Key] = append(m.busy[c.Key], span{worked, now, c.Receiver})
		}
		m.waits[c.Key] = append(m.waits[c.Key], span{start, until, c.Receiver})
		if c.End == "panic" && !worked.IsZero() || c.End == "goexit" && !worked.IsZero() {
			return // it got no answer, unless its work was cut short
		}
		m.checkAnswer(i, start, worked, ctx.Err() != nil, res, err)
	}()
	opts := []everonce.CallOption{everonce.WithWait(c.Wait), everonce.FingerprintOf(c.Print)}
	if m.plan.Transactions {
		res, err = everonce.Transact(ctx, m.txs[c.Receiver], crowdKey(c.Key), func(ctx context.Context, tx *mapTx) (string, error) {
			if worked.IsZero() { // or it runs again
				worked = time.Now()
			}
			if _, err := tx.Add(fmt.Sprint("effects of ", c.Key), 1); err != nil {
				return "", err
			}
			return m.attempt(ctx, i)
		}, opts...)
		return
	}
	if c.Refuses {
		opts = append(opts, everonce.WithPolicy(everonce.Refuse))
	}
	res, err = everonce.Do(ctx, m.guarded[c.Receiver], crowdKey(c.Key), func(ctx context.Context, _ *everonce.Attempt) (string, error) {
		worked = time.Now()
		return m.attempt(ctx, i)
	}, append(opts, everonce.WithReconcile(m.ask(c.Key)))...)
}

// checkAnswer checks the answer to call i against what has happened. The caller must hold m.mu.
func (m *crowdModel) checkAnswer(i int, start, worked time.Time, over bool, res everonce.Result[string], err error) {
	c := &m.plan.Calls[i]
	now := time.Now()
	calm := len(m.plan.Troubles) == 0
	twice := m.plan.Transactions && (m.plan.Optimistic || c.End == "refused") // both of two may work; or one between a refusal and its record
	wrong := func(why string) {
		m.fail("call %d of key %d (%v, %v) after %v: %s", i, c.Key, res.Outcome, err, now.Sub(start), why)
	}
	if calm && worked.IsZero() && m.plan.Word != slowStop {
		if now.Sub(start) > c.Wait {
			wrong("it waited longer than its limit")
		}
		if c.Gone > 0 && now.Sub(start) > c.Gone || m.plan.Stop > 0 && now.Sub(start) > 0 && now.Sub(m.start) > m.plan.Stop {
			wrong("it stayed when its context had ended")
		}
	}
	switch res.Outcome {
	case everonce.Executed, everonce.Replayed, everonce.Rejected:
		said := res.Value
		if res.Outcome == everonce.Rejected {
			var p *everonce.PermanentError
			if !errors.As(err, &p) {
				wrong("it is no refusal")
				return
			}
			said = strings.TrimPrefix(p.Code, "refused ")
		} else if err != nil {
			wrong("an error with a value")
		}
		if !strings.HasPrefix(said, fmt.Sprintf("%d/%d/", c.Key, c.Print)) && !strings.HasPrefix(said, fmt.Sprintf("%d/settled/", c.Key)) && !res.Reconciled {
			if m.plan.Policy != everonce.Reconcile || !strings.HasPrefix(said, fmt.Sprintf("%d/", c.Key)) { // a reconciler finds it in the ledger, from any attempt
				wrong(fmt.Sprintf("the answer %q is another's", said))
			}
		}
		switch {
		case m.final[c.Key] == "":
			m.final[c.Key] = said
		case m.final[c.Key] != said && !m.forgot[c.Key]:
			wrong(fmt.Sprintf("the answer %q, and others got %q", said, m.final[c.Key]))
		}
		if res.Outcome == everonce.Replayed && !worked.IsZero() && calm && !twice && !m.forced[c.Key] {
			wrong("a replay, and its work ran")
		}
	case everonce.InProgress:
		if !worked.IsZero() && !twice {
			wrong("its work ran")
		}
		if now.Sub(start) < c.Wait && !over {
			wrong("it did not wait")
		}
		if err == nil || !errors.Is(err, everonce.ErrInProgress) {
			wrong("another error")
		}
	case everonce.Mismatch:
		if !m.prints[c.Key][1-c.Print] {
			wrong("no call had another fingerprint")
		}
	case everonce.Unknown:
		if worked.IsZero() {
			if !m.dark[c.Key] && calm || m.plan.Policy == everonce.Reexecute && !m.plan.Transactions && !c.Refuses {
				wrong("nothing is unknown")
			}
			m.store.mapStore.mu.Lock()
			rec := m.store.records[crowdKey(c.Key).RecordID()]
			m.store.mapStore.mu.Unlock()
			if rec.Nonce == m.nonces[i] && rec.State == driver.StateClaimed {
				wrong("its own claim has the record")
			}
		}
	case everonce.Failed:
		if worked.IsZero() && !over && calm {
			wrong("its work did not run")
		}
	case everonce.LeaseLost:
		if calm && !m.forced[c.Key] {
			wrong("no other attempt took it")
		}
	case everonce.StoreFailed, everonce.NotRecorded:
		if calm {
			wrong("the store was well")
		}
	default:
		wrong("that is no answer")
	}
}

// act does something from beside.
func (m *crowdModel) act(ctx context.Context, n int) {
	a := &m.plan.Acts[n]
	time.Sleep(a.At)
	if m.plan.Stop > 0 && a.At >= m.plan.Stop {
		return
	}
	key := crowdKey(a.Key)
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.events[a.Key] = append(m.events[a.Key], time.Now())
	}()
	switch a.What {
	case "dies":
		req := driver.ClaimRequest{ID: key.RecordID(), Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), Owner: "dead", Lease: a.Lease, Lifetime: everonce.ForWeb()}
		if m.plan.Policy != everonce.Refuse && !m.plan.Transactions {
			req.Take = driver.TakeAbandoned
		}
		res, err := m.store.mapStore.Claim(ctx, req)
		if err != nil || res.Decision != driver.DecideClaimed {
			return
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		now := time.Now()
		m.dark[a.Key] = true
		m.busy[a.Key] = append(m.busy[a.Key], span{now, now.Add(a.Lease), noReceiver})
		m.events[a.Key] = append(m.events[a.Key], now.Add(a.Lease))
		if a.Effect && !m.plan.Transactions && len(m.effects[a.Key]) == 0 { // or it would have asked
			m.effect(a.Key, fmt.Sprintf("%d/dead/%d", a.Key, n))
		}
	case "settles", "forces":
		m.mu.Lock()
		s := everonce.Settlement{Verdict: everonce.SettleNotDone, Force: a.What == "forces"}
		m.forced[a.Key] = m.forced[a.Key] || s.Force
		m.more[a.Key]++
		if len(m.effects[a.Key]) > 0 {
			s.Verdict, s.Value = everonce.SettleDone, fmt.Sprintf("%d/settled/%d", a.Key, n)
		}
		m.mu.Unlock()
		if err := m.guarded[n%2].Settle(ctx, key, s); err != nil && len(m.plan.Troubles) == 0 && errors.Is(err, everonce.ErrStore) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.fail("the settlement: %v", err)
		}
	case "purges":
		if got, err := m.store.mapStore.Purge(ctx, driver.PurgeRequest{}); err != nil || got.Records+got.Results > 0 {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.fail("purged: %+v, %v", got, err)
		}
	case "forgets":
		m.mu.Lock()
		defer m.mu.Unlock()
		m.store.mapStore.mu.Lock()
		defer m.store.mapStore.mu.Unlock()
		rec, ok := m.store.records[key.RecordID()]
		if ok && m.store.locks[key.RecordID()] == nil && rec.StateAt(time.Now()) != driver.StateClaimed {
			delete(m.store.records, key.RecordID())
			m.forgot[a.Key] = true
			m.more[a.Key]++
		}
	}
}

// runCrowd runs a plan, and returns what went wrong.
func runCrowd(t *testing.T, p *crowdPlan) (problems []string) {
	synctest.Test(t, func(t *testing.T) {
		m := &crowdModel{plan: p, start: time.Now(), asks: map[[2]int][]time.Time{}, nonces: map[int]driver.Nonce{}}
		m.store = &modelStore{newMapStore(), m}
		var store driver.TxStore[*mapTx] = m.store
		if p.Word != noWord {
			m.word = &wordy{modelStore: m.store, asked: map[everonce.RecordID][]chan struct{}{}}
			store = m.word
		}
		for i := range m.guarded {
			o := &everonce.Options{Lease: p.Lease, StoreTimeout: 2 * time.Second, CompletionTimeout: 5 * time.Second, Optimistic: p.Optimistic}
			m.guarded[i], m.txs[i] = newReceiver(t, store, p.Policy, o), newTxReceiver(t, store, o)
			checkErr(t, m.guarded[i].Ready(t.Context()), nil)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if p.Stop > 0 {
			time.AfterFunc(p.Stop, cancel)
		}
		var all sync.WaitGroup
		for i := range p.Calls {
			all.Go(func() { m.call(ctx, i) })
		}
		for n := range p.Acts {
			all.Go(func() { m.act(t.Context(), n) })
		}
		all.Wait()
		m.strays.Wait()
		time.Sleep(10 * time.Second) // a renewal may still be on its way when its attempt has ended
		synctest.Wait()
		m.judge()
		m.store.checkIdle(t)
		problems = m.problems
	})
	return problems
}

// TestCrowdModel checks the answers to many callers of few keys, the effects, the waiting times and the store calls
// against what happened.
func TestCrowdModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := drawCrowd(rt)
		if problems := runCrowd(t, p); len(problems) > 0 {
			rt.Fatalf("%s\n%+v", strings.Join(problems[:min(5, len(problems))], "\n"), *p)
		}
	})
}
