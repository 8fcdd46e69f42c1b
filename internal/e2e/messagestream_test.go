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

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/everonce/everonce"
)

// messageWorkers consume at a time.
const messageWorkers = 2

// stream is a run of messages through workers, and through what happens to these and to their servers meanwhile.
type stream struct {
	t        *testing.T
	ctx      context.Context //nolint:containedctx // the run's own end
	rng      *rand.Rand
	messages int
	kind     brokerKind
	ways     []string
	spec     messageSpec
	referee  *referee
	out      *publisher
	pool     *pgxpool.Pool
	started  int
	workers  []*messageProcess
	verdicts map[int]everonce.SettleVerdict // on messages that were unknown
}

// streamLength is how many messages a stream has: EVERONCE_E2E_MESSAGES thousands in the soak. With -short a kill still
// falls into each phase of a message.
func streamLength(t *testing.T) int {
	t.Helper()
	s := os.Getenv("EVERONCE_E2E_MESSAGES")
	switch {
	case s == "" && testing.Short():
		return 400
	case s == "":
		return 1000
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("EVERONCE_E2E_MESSAGES is %q: give a positive number of thousands", s)
	}
	return 1000 * n
}

// newStream makes queues on a broker and a schema in a database, both of the test's own.
func newStream(t *testing.T, kind, broker, postgres string) *stream {
	t.Helper()
	messages := streamLength(t)
	seed := seedOf(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(max(messages/1000, 1))*10*time.Minute)
	t.Cleanup(cancel)
	s := &stream{t: t, ctx: ctx, rng: rand.New(rand.NewPCG(seed, 3)), messages: messages, verdicts: map[int]everonce.SettleVerdict{}}
	s.kind = brokerKinds[kind]
	s.ways = s.kind.ways()
	s.referee = newReferee(s.ways)
	name := "e2e_" + strconv.FormatUint(rand.Uint64(), 36) // a new name, whatever the seed
	server := httptest.NewServer(s.referee)
	t.Cleanup(server.Close)
	s.spec = messageSpec{Kind: kind, Broker: broker, Queues: name, Postgres: postgres, Schema: name, Referee: server.URL}
	s.pool = s.spec.openSchema(t)
	s.spec.declare(t, s.ways)
	s.out = newPublisher(&s.spec, s.ways, s.rng, s.messages)
	return s
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
		t.Fatalf("%s ended unexpectedly: %v\n%s", p.name, err, lastOf(p.stderr.String()))
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
