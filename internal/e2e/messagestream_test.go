package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
	"github.com/everonce/everonce/store/pgxstore"
	"github.com/jackc/pgx/v5/pgxpool"
)

// messageWorkers consume at a time.
const messageWorkers = 2

// stream is a run of messages through workers, and through what happens to these and to their servers meanwhile.
type stream struct {
	t        *testing.T
	ctx      context.Context //nolint:containedctx // the run's own end
	rng      *rand.Rand
	messages int
	spec     messageSpec
	referee  *referee
	out      *publisher
	pool     *pgxpool.Pool
	started  int
	workers  []*messageProcess
}

// multiple is how many times a thousand messages: EVERONCE_E2E_MESSAGES in the soak.
func multiple(t *testing.T) int {
	t.Helper()
	s := os.Getenv("EVERONCE_E2E_MESSAGES")
	if s == "" {
		return 1
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("EVERONCE_E2E_MESSAGES is %q: give a positive number of thousands", s)
	}
	return n
}

// newStream makes queues on a broker and a schema in a database, both of the test's own.
func newStream(t *testing.T, broker, postgres string) *stream {
	t.Helper()
	thousands := multiple(t)
	seed := seedOf(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(thousands)*10*time.Minute)
	t.Cleanup(cancel)
	s := &stream{t: t, ctx: ctx, rng: rand.New(rand.NewPCG(seed, 3)), messages: 1000 * thousands, referee: newReferee(messageWays)}
	name := "e2e_" + strconv.FormatUint(rand.Uint64(), 36) // of its own, whatever the seed
	server := httptest.NewServer(s.referee)
	t.Cleanup(server.Close)
	s.spec = messageSpec{Broker: broker, Queues: name, Postgres: postgres, Schema: name, Referee: server.URL}
	s.openSchema()
	s.declare()
	s.out = newPublisher(s.spec, s.rng, s.messages)
	return s
}

func (s *stream) openSchema() {
	s.t.Helper()
	var err error
	if s.pool, err = s.spec.pool(s.ctx); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(s.pool.Close)
	store, err := pgxstore.New(s.pool, &pgxstore.Options{Schema: s.spec.Schema})
	if err != nil {
		s.t.Fatal(err)
	}
	if err := store.Migrate(s.ctx); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if _, err := s.pool.Exec(context.Background(), `DROP SCHEMA `+s.spec.Schema+` CASCADE`); err != nil {
			s.t.Error(err)
		}
	})
	if _, err := s.pool.Exec(s.ctx, `CREATE TABLE effect (way TEXT NOT NULL, op BIGINT NOT NULL)`); err != nil { // nothing makes them unique
		s.t.Fatal(err)
	}
}

// declare declares the queues, as any consumer does.
func (s *stream) declare() {
	s.t.Helper()
	nobody, err := consume.NewNatural(consume.NaturalSpec[operation]{
		Consumer: "nobody", Key: consume.ProducerID(),
		Handle: func(context.Context, *consume.Message, operation) (bool, error) { return false, nil },
	})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, way := range messageWays {
		c, err := rabbitonce.Dial(s.spec.Broker, s.spec.queue(way), nobody, nil)
		if err != nil {
			s.t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			s.t.Error(err)
		}
	}
	s.t.Cleanup(s.deleteQueues)
}

// messageProcess is a worker that runs.
type messageProcess struct {
	name   string
	cmd    *exec.Cmd
	stderr *strings.Builder
	done   chan struct{}
	err    error
}

func (s *stream) startWorker() *messageProcess {
	s.t.Helper()
	s.started++
	spec := s.spec
	spec.Worker = fmt.Sprint("worker-", s.started)
	raw, err := json.Marshal(spec)
	if err != nil {
		s.t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	p := &messageProcess{name: spec.Worker, cmd: exec.Command(exe), stderr: &strings.Builder{}, done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), messageWorkerEnv+"="+string(raw))
	p.cmd.Stderr = p.stderr
	if err := p.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	s.t.Cleanup(func() {
		_ = p.cmd.Process.Kill() //nolint:errcheck // it has ended already
		<-p.done
		if s.t.Failed() {
			s.t.Logf("%s wrote:\n%s", p.name, lastOf(p.stderr.String()))
		}
	})
	return p
}

// lastOf is what a process wrote at last.
func lastOf(text string) string {
	const most = 4000
	if len(text) > most {
		return "…" + text[len(text)-most:]
	}
	return text
}

// kill ends a worker in whatever it does.
func (p *messageProcess) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatalf("%s ended before it was killed: %v\n%s", p.name, err, lastOf(p.stderr.String()))
	}
	<-p.done
}

// end lets a worker drain.
func (p *messageProcess) end(ctx context.Context, t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatalf("%s ended by itself: %v\n%s", p.name, err, lastOf(p.stderr.String()))
	}
	select {
	case <-p.done:
		if p.err != nil {
			t.Fatalf("%s: %v\n%s", p.name, p.err, lastOf(p.stderr.String()))
		}
	case <-ctx.Done():
		t.Fatalf("%s does not end\n%s", p.name, lastOf(p.stderr.String()))
	}
}

// deleteQueues deletes all of them.
func (s *stream) deleteQueues() {
	conn, err := dialBroker(s.spec.Broker)
	if err != nil {
		s.t.Error(err)
		return
	}
	defer conn.cut()
	defer conn.bound()()
	ch, err := conn.Channel()
	if err != nil {
		s.t.Error(err)
		return
	}
	for _, q := range s.queues() {
		if _, err := ch.QueueDelete(q, false, false, false); err != nil {
			s.t.Error(err)
			return
		}
	}
}

// queues are the names of all queues.
func (s *stream) queues() (names []string) {
	for _, way := range messageWays {
		q := s.spec.queue(way)
		names = append(names, q.Name, q.Name+".dead")
		for _, d := range q.Delays {
			names = append(names, q.Name+".retry."+d.String())
		}
	}
	return names
}

// waiting is how many messages are in the queues: those that a worker has in hand are in none.
func (s *stream) waiting() (map[string]int, error) {
	conn, err := dialBroker(s.spec.Broker)
	if err != nil {
		return nil, err
	}
	defer conn.cut()
	defer conn.bound()()
	ch, err := conn.Channel()
	if err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for _, name := range s.queues() {
		q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
		if err != nil {
			return nil, err
		}
		if q.Messages > 0 {
			counts[name] = q.Messages
		}
	}
	return counts, nil
}
