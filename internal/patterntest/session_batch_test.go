package patterntest

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/oncetest"
	"github.com/everonce/everonce/session"
	"github.com/everonce/everonce/session/sqlsession"
)

var oneByOne = &sqlsession.Options{Batch: 16, Batches: 1, Wait: time.Minute}

// inLine is a context that tells when somebody waits for its end, as a request does once it has its place in the queue.
type inLine struct {
	context.Context
	stands func()
}

func (c *inLine) Done() <-chan struct{} {
	c.stands()
	return c.Context.Done()
}

// turn is a request of a batch, and what came of it.
type turn[Tx any] struct {
	command session.Command
	work    sqlsession.Work[Tx]
	ctx     context.Context
	answer  session.Reply
	err     error
	unwound any // what it panicked with, or true
}

// batch makes requests wait in order, while a request of another session is executed, and then go on together.
func (c clients[Tx]) batch(t *testing.T, gate *session.Command, turns ...*turn[Tx]) {
	t.Helper()
	var wg sync.WaitGroup
	gate.Number++
	gate.Mark = gate.Number - 1
	a, err := c.Apply(t.Context(), gate, func(context.Context, Tx, []byte) ([]byte, error) {
		for _, turn := range turns {
			stands := make(chan struct{})
			wg.Go(func() {
				returned := false
				defer func() {
					if p := recover(); p != nil {
						turn.unwound = p
					} else if !returned {
						turn.unwound = true
					}
				}()
				ctx := turn.ctx
				if ctx == nil {
					ctx = t.Context()
				}
				if turn.work == nil {
					turn.work = c.effect
				}
				turn.answer, turn.err = c.Apply(&inLine{ctx, sync.OnceFunc(func() { close(stands) })}, &turn.command, turn.work)
				returned = true
			})
			select {
			case <-stands:
			case <-time.After(hung):
				t.Error("a request does not wait in line")
			}
		}
		return nil, nil
	})
	if err != nil || a.Err != 0 {
		t.Errorf("gate: %+v, %v", a, err)
	}
	wg.Wait()
}

// gate begins a session whose requests others wait for.
func (c clients[Tx]) gate(t *testing.T) *session.Command {
	t.Helper()
	nonce := anyNonce()
	return &session.Command{Op: session.Request, Session: c.register(t, nonce), Nonce: nonce}
}

func TestSessionsShareACommit(t *testing.T) {
	onAll(t, testSessionBatch[pgx.Tx], testSessionBatch[*sql.Tx])
}

// Requests of a batch are one transaction. One that fails, panics, ends its goroutine or spoils the transaction is
// alone with that: the others commit, in their order, and their duplicates among them are replayed.
func testSessionBatch[Tx any](t *testing.T, h *handle[Tx]) {
	s := newSessions(t, h, session.Config{}, oneByOne)
	gate := s.gate(t)
	var nonces [6]session.Nonce
	var ids [6]session.ID
	for i := range nonces {
		nonces[i] = anyNonce()
		ids[i] = s.register(t, nonces[i])
	}
	var mu sync.Mutex
	var txs []any
	var order []string
	calls := map[string]int{}
	noting := func(ctx context.Context, tx Tx, payload []byte) ([]byte, error) {
		mu.Lock()
		if name := string(payload); calls[name] == 0 {
			order = append(order, name)
		}
		calls[string(payload)]++
		txs = append(txs, any(tx))
		mu.Unlock()
		return s.effect(ctx, tx, payload)
	}
	good := func(i int, number uint64) *turn[Tx] {
		return &turn[Tx]{command: requestOf(ids[i], nonces[i], number, fmt.Sprint(ids[i], " ", number)), work: noting}
	}
	check := func(turns ...*turn[Tx]) {
		t.Helper()
		for _, turn := range turns {
			if turn.err != nil || turn.answer.Err != 0 || !bytes.Equal(turn.answer.Result, turn.command.Payload) {
				t.Errorf("%s: %+v, %v", turn.command.Payload, turn.answer, turn.err)
			}
			if n := s.effects(t, string(turn.command.Payload)); n != 1 {
				t.Errorf("%s: %d effects", turn.command.Payload, n)
			}
		}
	}

	// All goes well: one transaction.
	a, b, again, next := good(0, 1), good(1, 1), good(0, 1), good(0, 2)
	next.command.Mark = 1
	s.batch(t, gate, a, b, again, next, good(2, 1))
	check(a, b, again, next)
	if !again.answer.Replayed || a.answer.Replayed {
		t.Errorf("a duplicate in the batch: %+v, and %+v", a.answer, again.answer)
	}
	if want := fmt.Sprint([]string{string(a.command.Payload), string(b.command.Payload), string(next.command.Payload), fmt.Sprint(ids[2], " ", 1)}); fmt.Sprint(order) != want {
		t.Errorf("order %v, want %v", order, want)
	}
	for _, tx := range txs {
		if tx != txs[0] {
			t.Error("they were not one transaction")
		}
	}
	if n := h.number(t, "SELECT count(*) FROM everonce_session_answer WHERE session_id = $1", int64(ids[0])); n != 1 {
		t.Errorf("%d answers are kept of a session that has acknowledged one, want 1", n)
	}

	// Some fail, twice: without savepoints, and behind one each from the start.
	broken := errors.New("broken")
	for round := range uint64(2) {
		failing := func(work sqlsession.Work[Tx]) sqlsession.Work[Tx] {
			return func(ctx context.Context, tx Tx, payload []byte) ([]byte, error) {
				if _, err := s.effect(ctx, tx, payload); err != nil {
					return nil, err
				}
				return work(ctx, tx, payload)
			}
		}
		request := func(i int, name string, work sqlsession.Work[Tx]) *turn[Tx] {
			return &turn[Tx]{command: requestOf(ids[i], nonces[i], 3+round, fmt.Sprint(name, round)), work: failing(work)}
		}
		gone, end := context.WithCancel(t.Context())
		errored := request(0, "error", func(context.Context, Tx, []byte) ([]byte, error) { return nil, broken })
		panics := request(2, "panic", func(context.Context, Tx, []byte) ([]byte, error) { panic("of the work") })
		exits := request(3, "exit", func(context.Context, Tx, []byte) ([]byte, error) { runtime.Goexit(); return nil, nil })
		spoils := request(4, "spoils", func(ctx context.Context, tx Tx, payload []byte) ([]byte, error) {
			_ = h.exec(ctx, tx, "INSERT INTO nowhere (name) VALUES ($1)", "x") //nolint:errcheck // the work hides the error
			return payload, nil
		})
		ends := request(5, "ends", func(_ context.Context, _ Tx, payload []byte) ([]byte, error) { return payload, nil })
		ends.ctx = gone
		fine, later := good(1, 3+round), good(1, 5+round)
		foreign := &turn[Tx]{command: requestOf(ids[1], anyNonce(), 9, "foreign")}
		unknown := &turn[Tx]{command: requestOf(1000, nonces[0], 1, "unknown")}
		first := good(0, 10+round)
		first.work = func(ctx context.Context, tx Tx, payload []byte) ([]byte, error) {
			end() // its turn has not come
			return noting(ctx, tx, payload)
		}
		s.batch(t, gate, first, errored, fine, panics, spoils, foreign, unknown, ends, later)
		check(fine, later, first)
		if !errors.Is(errored.err, broken) {
			t.Errorf("the work's error: %v", errored.err)
		}
		if panics.unwound != "of the work" {
			t.Errorf("the work's panic: %v", panics.unwound)
		}
		if spoils.err == nil && h.name != "sqlite" && h.name != "mariadb" { // where a failed statement leaves the rest of the transaction unchanged
			t.Errorf("%+v after a statement that had failed", spoils.answer)
		}
		if !errors.Is(ends.err, context.Canceled) {
			t.Errorf("the end of the caller: %v", ends.err)
		}
		if foreign.answer.Err != session.ErrSessionUnknown || unknown.answer.Err != session.ErrSessionUnknown {
			t.Errorf("with another's nonce: %+v; an unknown session: %+v", foreign.answer, unknown.answer)
		}
		fine = good(1, 7+round)
		s.batch(t, gate, exits, fine)
		check(fine)
		if exits.unwound != true {
			t.Errorf("the work's Goexit: %v", exits.unwound)
		}
		for _, failed := range []*turn[Tx]{errored, panics, exits, ends, foreign, unknown} {
			if n := s.effects(t, string(failed.command.Payload)); n != 0 {
				t.Errorf("%s: %d effects", failed.command.Payload, n)
			}
		}
		if n := s.effects(t, string(spoils.command.Payload)); (n == 1) != (spoils.err == nil) {
			t.Errorf("%v, and %d effects", spoils.err, n)
		}
	}
}

func TestSessionBatchesAnswerAsTheMachine(t *testing.T) {
	onEachDatabase(t, testSessionBatchModel[pgx.Tx], testSessionBatchModel[*sql.Tx])
}

// Random requests in one batch have the answers that the machine gives them one after the other.
func testSessionBatchModel[Tx any](t *testing.T, h *handle[Tx]) {
	h, micros := h.byHand(t)
	config := session.Config{Lease: time.Minute, Window: 3, MaxResult: 10, MaxBytes: 20}
	s := newSessions(t, h, config, oneByOne)
	m, err := session.New(config)
	must(t, err)
	gate := s.gate(t)
	m.Apply(micros.Load()*1000, &session.Command{Op: session.Register, Nonce: gate.Nonce}, nil)
	var ids []session.ID
	for n := range byte(3) {
		c := session.Command{Op: session.Register, Nonce: session.Nonce{15: n}, Ordered: n == 2}
		m.Apply(micros.Load()*1000, &c, nil)
		ids = append(ids, s.do(t, c).Session)
	}
	rounds := 60
	if !testing.Short() {
		rounds = 400
	}
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	var base uint64
	answers := map[session.Refusal]int{}
	replayed, elided := 0, 0
	for round := range rounds {
		micros.Add(random.Int64N(1000))
		m.Apply(micros.Load()*1000, &session.Command{Op: session.Tick}, nil)
		var turns []*turn[Tx]
		for range 2 + random.IntN(8) {
			who := random.IntN(3)
			c := requestOf(ids[who], session.Nonce{15: byte(who)}, base+random.Uint64N(6), string(bytes.Repeat([]byte("x"), random.IntN(16))))
			c.Fingerprint = session.Fingerprint{byte(random.IntN(8) / 7)}
			if random.IntN(2) == 0 {
				c.Mark = c.Number - random.Uint64N(min(3, c.Number+1))
			}
			turns = append(turns, &turn[Tx]{command: c, work: func(_ context.Context, _ Tx, payload []byte) ([]byte, error) { return payload, nil }})
		}
		s.batch(t, gate, turns...)
		for i, turn := range turns {
			want := m.Apply(micros.Load()*1000, &turn.command, func() []byte { return turn.command.Payload })
			got := turn.answer
			if turn.err != nil || got.Err != want.Err || got.Replayed != want.Replayed || got.Elided != want.Elided || got.Next != want.Next || !bytes.Equal(got.Result, want.Result) {
				t.Fatalf("seed %d, round %d, request %d: %+v, %v of %+v, want %+v", seed, round, i, got, turn.err, turn.command, want)
			}
			answers[want.Err]++
			if want.Replayed {
				replayed++
			}
			if want.Elided {
				elided++
			}
		}
		if h.number(t, "SELECT count(*) FROM everonce_session AS s WHERE bytes <> (SELECT coalesce(sum(size), 0) FROM everonce_session_answer AS a WHERE a.session_id = s.id)") != 0 {
			t.Fatalf("seed %d, round %d: bytes differ from the size of the results", seed, round)
		}
		if round%3 == 0 {
			base += random.Uint64N(3)
		}
	}
	if len(answers) < 6 || replayed == 0 || elided == 0 {
		t.Errorf("answers %v, %d replayed, %d elided: it is blind", answers, replayed, elided)
	}
}

func TestCrashPointsOfABatch(t *testing.T) {
	onEachDatabase(t, testCrashPointsOfABatch[pgx.Tx], testCrashPointsOfABatch[*sql.Tx])
}

// Whatever call fails, done or not, the commit's of many too: each client sends the same again until it is answered,
// and each request has had its effect once.
func testCrashPointsOfABatch[Tx any](t *testing.T, h *handle[Tx]) {
	healthy := newSessions(t, h, session.Config{}, nil)
	var nonces [4]session.Nonce
	var ids [4]session.ID
	for i := range nonces {
		nonces[i] = anyNonce()
		ids[i] = healthy.register(t, nonces[i])
	}
	number := uint64(0)
	everyPoint(t, func(c *crashPoint, name string) {
		faulty := h.on(t, &tamperedStore[Tx]{oncetest.FaultTxStore[Tx](h.store, c.plan), tampered(t, h, &tampering{around: c.around}).sqldb(t)})
		s := clients[Tx]{h: h}
		var err error
		s.Store, err = sqlsession.New(faulty.receiver, session.Config{Lease: time.Minute}, oneByOne)
		must(t, err)
		number++
		var wg sync.WaitGroup
		for i := range ids {
			wg.Go(func() {
				request := requestOf(ids[i], nonces[i], number, fmt.Sprint(name, " ", i))
				request.Mark = number - 1
				for range 20 {
					a, err := s.Apply(t.Context(), &request, s.effect)
					if err == nil && a.Err == 0 && string(a.Result) == string(request.Payload) {
						return
					}
					if err == nil {
						t.Errorf("%s: %+v", request.Payload, a)
					}
				}
				t.Errorf("%s: no answer", request.Payload)
			})
		}
		wg.Wait()
		for i := range ids {
			if n := s.effects(t, fmt.Sprint(name, " ", i)); n != 1 {
				t.Errorf("%s: %d effects of %d", name, n, i)
			}
		}
		if n := h.number(t, "SELECT count(*) FROM everonce_session_answer"); n != len(ids) {
			t.Errorf("%s: %d answers are kept, want %d", name, n, len(ids))
		}
	})
}

// A transaction that the server rolls back under a work that does not report it is over: the next work's effect must
// not commit alone, and then happen again.
func TestTrapNoEffectOfABatchCommitsByItself(t *testing.T) {
	t.Parallel()
	onMySQLs(t, testTrapNoEffectOfABatchCommitsByItself)
}

func testTrapNoEffectOfABatchCommitsByItself(t *testing.T, h *handle[*sql.Tx]) {
	s := newSessions(t, h, session.Config{}, oneByOne)
	gate := s.gate(t)
	turns := make([]*turn[*sql.Tx], 3)
	for i := range turns {
		nonce := anyNonce()
		turns[i] = &turn[*sql.Tx]{command: requestOf(s.register(t, nonce), nonce, 1, fmt.Sprint("request ", i))}
	}
	turns[1].work = func(ctx context.Context, tx *sql.Tx, payload []byte) ([]byte, error) {
		return payload, h.exec(ctx, tx, "ROLLBACK") // as for a deadlock
	}
	for range 2 { // at first without savepoints
		s.batch(t, gate, turns...)
		if !errors.Is(turns[1].err, everonce.ErrStore) {
			t.Errorf("what was rolled back: %+v, %v", turns[1].answer, turns[1].err)
		}
		for _, i := range []int{0, 2} {
			if n := s.effects(t, fmt.Sprint("request ", i)); n != 1 || turns[i].err != nil || turns[i].answer.Err != 0 {
				t.Errorf("request %d: %d effects, %+v, %v", i, n, turns[i].answer, turns[i].err)
			}
		}
		h.must(t, "DELETE FROM effects")
		for _, turn := range turns {
			turn.command.Number++
		}
	}
}

// A call inside of a transaction on the same store is refused, and not put in line behind itself.
func TestTrapABatchDoesNotWaitForItself(t *testing.T) {
	t.Parallel()
	s := newSessions(t, onSQLite(t), session.Config{}, oneByOne)
	nonce := anyNonce()
	id := s.register(t, nonce)
	c := requestOf(id, nonce, 1, "outer")
	_, err := s.Apply(t.Context(), &c, func(ctx context.Context, _ *sql.Tx, _ []byte) ([]byte, error) {
		inner := requestOf(id, nonce, 2, "inner")
		_, err := s.Apply(ctx, &inner, s.effect)
		return nil, err
	})
	if !errors.Is(err, everonce.ErrInTransaction) {
		t.Error(err)
	}
}
