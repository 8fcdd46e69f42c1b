package patterntest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"net/rpc"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/internal/testserver"
	"github.com/everonce/everonce/session"
	"github.com/everonce/everonce/session/sqlsession"
	"github.com/everonce/everonce/store/sqlitestore"
)

// Two processes apply the commands of clients, in batches, and are killed at random moments: after effects were written
// and before their commit, after a commit and before its answer, and at any other time. Clients send the same number
// again until they have its answer: each has had one effect, and its answer comes from the execution which made it,
// however often it is asked for.
func TestKillSessionsPostgres(t *testing.T) {
	t.Parallel()
	url, name := schema(t)
	db, err := sql.Open("pgx", url)
	must(t, err)
	t.Cleanup(func() { db.Close() })
	killSessions(t, postgresHandle(t, db, name), childSpec{Postgres: url, Schema: name})
}

func TestKillSessionsMariaDB(t *testing.T) {
	t.Parallel()
	address, _, h := onDatabase(t, testserver.URL(t, "mariadb"))
	killSessions(t, h, childSpec{MariaDB: address})
}

func TestKillSessionsMySQL(t *testing.T) {
	t.Parallel()
	address, _, h := onDatabase(t, mySQL(t))
	killSessions(t, h, childSpec{MariaDB: address})
}

func TestKillSessionsSQLite(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "once.db")
	store, err := sqlitestore.Open(t.Context(), path, nil)
	must(t, err)
	killSessions(t, sqliteHandle(t, store), childSpec{SQLite: path})
}

// served are the sessions of a process, for its clients.
type served struct {
	apply func(c *session.Command) (session.Reply, error)
}

// Apply applies a command.
func (s *served) Apply(c session.Command, answer *session.Reply) (err error) {
	*answer, err = s.apply(&c)
	return err
}

// serveSessions applies the commands of clients until ctx ends, or it dies.
func serveSessions[Tx any](ctx context.Context, spec childSpec, receiver *everonce.TxReceiver[Tx], exec func(ctx context.Context, tx Tx, text string, args ...any) error) error {
	store, err := sqlsession.New(receiver, session.Config{Lease: time.Hour}, &sqlsession.Options{Batch: 16, Batches: 1})
	if err != nil {
		return err
	}
	listener, err := net.Listen("unix", spec.Socket)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { listener.Close() })
	var answered, effects atomic.Int64
	work := func(ctx context.Context, tx Tx, payload []byte) ([]byte, error) {
		result := string(payload) + " " + rand.Text() // of this execution alone
		if err := exec(ctx, tx, "INSERT INTO effects (name) VALUES ($1)", result); err != nil {
			return nil, err
		}
		if effects.Add(1) == int64(spec.DieInHandler) {
			die()
		}
		return []byte(result), nil
	}
	server := rpc.NewServer()
	if err := server.RegisterName("Sessions", &served{func(c *session.Command) (session.Reply, error) {
		a, err := store.Apply(ctx, c, work)
		if answered.Add(1) == int64(spec.DieAfterSend) {
			die()
		}
		_, _ = os.Stdout.Write([]byte{'.'}) //nolint:errcheck // a sign of life
		return a, err
	}}); err != nil {
		return err
	}
	server.Accept(listener)
	return nil
}

// workers are the processes that serve at the moment.
type workers struct {
	mu      sync.Mutex
	sockets []string
}

func (w *workers) changed(from, to string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, socket := range w.sockets {
		if socket == from {
			w.sockets[i] = to
			return
		}
	}
	w.sockets = append(w.sockets, to)
}

// sessionUser is a client over its connections to them.
type sessionUser struct {
	at     *workers
	conn   *rpc.Client
	resent *atomic.Int64
}

// send sends a command until it is answered. One that is answered may be lost, too.
func (u *sessionUser) send(ctx context.Context, c session.Command) (a session.Reply, err error) {
	for ctx.Err() == nil {
		if u.conn == nil {
			u.at.mu.Lock()
			socket := u.at.sockets[mathrand.IntN(len(u.at.sockets))]
			u.at.mu.Unlock()
			if u.conn, err = rpc.Dial("unix", socket); err != nil { // it is dead, or not there yet
				u.conn = nil
				time.Sleep(time.Millisecond)
				continue
			}
		}
		a = session.Reply{}
		switch err = u.conn.Call("Sessions.Apply", c, &a); {
		case err == nil && a.Err != session.ErrInProgress:
			return a, a.Err.Or()
		case err != nil:
			u.conn.Close()
			u.conn = nil
		}
		u.resent.Add(1)
	}
	return a, errors.Join(context.Cause(ctx), err)
}

// run has a client send one number after the other, until it is told to stop. It returns the answers.
func (u *sessionUser) run(ctx context.Context, stop <-chan struct{}, name string) (answers []string, err error) {
	nonce := anyNonce()
	a, err := u.send(ctx, session.Command{Op: session.Register, Nonce: nonce})
	if err != nil {
		return nil, err
	}
	id := a.Session
	for number := uint64(1); ; number++ {
		c := requestOf(id, nonce, number, fmt.Sprint(name, " ", number))
		c.Mark = max(number, 3) - 3
		if a, err = u.send(ctx, c); err != nil {
			return nil, fmt.Errorf("%s %d: %w", name, number, err)
		}
		answers = append(answers, string(a.Result))
		if asked := number - mathrand.Uint64N(min(3, number)); mathrand.IntN(3) == 0 { // one that was answered
			c = requestOf(id, nonce, asked, fmt.Sprint(name, " ", asked))
			a, err := u.send(ctx, c)
			if err != nil || !a.Replayed || string(a.Result) != answers[asked-1] {
				return nil, fmt.Errorf("%s %d again: %+v, %w, and %q before", name, asked, a, err, answers[asked-1])
			}
		}
		select {
		case <-stop:
			return answers, nil
		default:
		}
	}
}

func killSessions[Tx any](t *testing.T, h *handle[Tx], spec childSpec) {
	const users = 12
	deadline, cancel := context.WithTimeout(t.Context(), time.Minute+time.Duration(killCycles())*3*time.Second)
	defer cancel()
	newSessions(t, h, session.Config{}, nil)
	folder := t.TempDir()
	died := make(chan *child, 4)
	at := &workers{}
	random := mathrand.New(mathrand.NewPCG(mathrand.Uint64(), 1))
	begin := func(cycle int, instead string) (*child, string) {
		s, killAfter := spec, 0
		s.Socket = filepath.Join(folder, fmt.Sprint(cycle))
		switch draw := 1 + random.IntN(60); cycle % 3 {
		case 0:
			s.DieAfterSend = draw
		case 1:
			s.DieInHandler = draw
		default:
			killAfter = draw
		}
		c := start(t, s, killAfter, died)
		at.changed(instead, s.Socket)
		return c, s.Socket
	}
	alive := map[*child]string{}
	for cycle := range 2 {
		c, socket := begin(cycle, "")
		alive[c] = socket
	}

	var wg sync.WaitGroup
	stop := make(chan struct{})
	var resent atomic.Int64
	var answers [users][]string
	for i := range users {
		wg.Go(func() {
			var err error
			if answers[i], err = (&sessionUser{at: at, resent: &resent}).run(deadline, stop, fmt.Sprint("client ", i, " number")); err != nil {
				t.Error(err)
				cancel()
			}
		})
	}
	for deaths := 0; deaths < killCycles() && deadline.Err() == nil; {
		select {
		case c := <-died:
			if c.cmd.ProcessState.ExitCode() >= 0 { // not by a signal
				t.Errorf("a process ended unexpectedly: %v\n%s", c.cmd.ProcessState, &c.stderr)
				cancel()
			}
			deaths++
			next, socket := begin(deaths+1, alive[c])
			delete(alive, c)
			alive[next] = socket
		case <-deadline.Done():
		}
	}
	last := spec
	last.Socket = filepath.Join(folder, "last")
	c := start(t, last, 0, died)
	for _, socket := range alive { // they may kill themselves until here, and no client waits for them
		at.changed(socket, last.Socket)
	}
	for other := range alive {
		_ = other.cmd.Process.Kill() //nolint:errcheck // it may have ended
		<-died
	}
	close(stop)
	wg.Wait()
	must(t, c.stop.Close())
	if c := <-died; !c.cmd.ProcessState.Success() {
		t.Errorf("the last process: %v\n%s", c.cmd.ProcessState, &c.stderr)
	}
	if !t.Failed() {
		h.auditSessions(t, answers[:])
		t.Logf("%d commands were sent again", resent.Load())
	}
	if resent.Load() == 0 {
		t.Error("blind: no command was sent again")
	}
}

// auditSessions compares the effects with the answers.
func (h *handle[Tx]) auditSessions(t *testing.T, answers [][]string) {
	t.Helper()
	rows, err := h.db.QueryContext(t.Context(), "SELECT name FROM effects")
	must(t, err)
	defer rows.Close()
	effects := map[string]int{}
	for rows.Next() {
		var name string
		must(t, rows.Scan(&name))
		effects[name]++
	}
	must(t, rows.Err())
	numbers := 0
	for i, of := range answers {
		for number, answer := range of {
			numbers++
			if effects[answer] != 1 || !strings.HasPrefix(answer, fmt.Sprint("client ", i, " number ", number+1, " ")) {
				t.Errorf("client %d, number %d: answered %q, which has %d effects", i, number+1, answer, effects[answer])
			}
		}
	}
	if len(effects) != numbers {
		t.Errorf("%d effects of %d numbers", len(effects), numbers)
	}
	t.Logf("%d numbers of %d clients", numbers, len(answers))
}
