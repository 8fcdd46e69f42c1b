package patterntest

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/inbox"
	"github.com/everonce/everonce/internal/testserver"
	"github.com/everonce/everonce/outbox"
	"github.com/everonce/everonce/store/sqlitestore"
)

// Processes that run a relay and a worker are killed at random moments, after an event was sent and before it was
// marked, and after an effect was written and before it was committed: nothing is lost; a consumer that knows events by
// their IDs sees each once, and in the order of their keys; a message takes effect once.
func TestKillPostgres(t *testing.T) {
	t.Parallel()
	url, name := schema(t)
	db, err := sql.Open("pgx", url)
	must(t, err)
	t.Cleanup(func() { db.Close() })
	kills(t, postgresHandle(t, db, name), childSpec{Postgres: url, Schema: name})
}

func TestKillMariaDB(t *testing.T) {
	t.Parallel()
	address, _, h := onDatabase(t, testserver.URL(t, "mariadb"))
	kills(t, h, childSpec{MariaDB: address})
}

func TestKillMySQL(t *testing.T) {
	t.Parallel()
	address, _, h := onDatabase(t, mySQL(t))
	kills(t, h, childSpec{MariaDB: address})
}

func TestKillSQLite(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "once.db")
	store, err := sqlitestore.Open(t.Context(), path, nil)
	must(t, err)
	kills(t, sqliteHandle(t, store), childSpec{SQLite: path})
}

func killCycles() int {
	if testing.Short() {
		return 12
	}
	return 1000
}

// child is a process that runs.
type child struct {
	cmd    *exec.Cmd
	stop   io.Closer // its standard input
	stderr strings.Builder
}

// start starts a process, which is killed after so many signs of life, or, at 0, as its spec says. It is sent on died
// when it has ended.
func start(t *testing.T, spec childSpec, killAfter int, died chan<- *child) *child {
	t.Helper()
	raw, err := json.Marshal(spec)
	must(t, err)
	exe, err := os.Executable()
	must(t, err)
	c := &child{cmd: exec.Command(exe)}
	c.cmd.Env = append(os.Environ(), childEnv+"="+string(raw))
	c.cmd.Stderr = &c.stderr
	c.stop, err = c.cmd.StdinPipe()
	must(t, err)
	signs, err := c.cmd.StdoutPipe()
	must(t, err)
	must(t, c.cmd.Start())
	t.Cleanup(func() { _ = c.cmd.Process.Kill() })
	go func() {
		r := bufio.NewReaderSize(signs, 16)
		for n := 1; ; n++ {
			if _, err := r.ReadByte(); err != nil {
				break
			}
			if n == killAfter {
				_ = c.cmd.Process.Kill() //nolint:errcheck // it may have ended
			}
		}
		_ = c.cmd.Wait() //nolint:errcheck // that is what it died of
		died <- c
	}()
	return c
}

func kills[Tx any](t *testing.T, h *handle[Tx], spec childSpec) {
	deadline, cancel := context.WithTimeout(t.Context(), time.Minute+time.Duration(killCycles())*3*time.Second)
	defer cancel()
	h.must(t, "DROP TABLE effects")
	serial := "bigserial PRIMARY KEY"
	switch h.name {
	case "sqlite":
		serial = "INTEGER PRIMARY KEY AUTOINCREMENT"
	case "mariadb":
		serial = "bigint AUTO_INCREMENT PRIMARY KEY"
	}
	h.must(t, "CREATE TABLE effects (seq "+serial+", name TEXT NOT NULL)")
	box := newOutbox(t, h)
	in := newInbox(t, h, killInbox())
	spec.Sink = filepath.Join(t.TempDir(), "sink")
	must(t, os.WriteFile(spec.Sink, nil, 0o600))

	died := make(chan *child, 4)
	random := rand.New(rand.NewPCG(rand.Uint64(), 1))
	begin := func(cycle int) *child {
		s, killAfter := spec, 0
		switch draw := 1 + random.IntN(12); cycle % 3 {
		case 0:
			s.DieAfterSend = draw
		case 1:
			s.DieInHandler = 1 + draw/4
		default:
			killAfter = draw
		}
		return start(t, s, killAfter, died)
	}
	alive := map[*child]bool{begin(0): true, begin(1): true}
	var events, messages int
	for deaths := 0; deaths < killCycles(); {
		h.feed(t, box, in, &events, &messages)
		must(t, within(deadline, "a death, or the end of the work", func() (bool, error) {
			select {
			case c := <-died:
				if c.cmd.ProcessState.ExitCode() >= 0 { // not by a signal
					return false, fmt.Errorf("a process ended unexpectedly: %v\n%s", c.cmd.ProcessState, &c.stderr)
				}
				delete(alive, c)
				deaths++
				alive[begin(deaths+1)] = true
				return true, nil
			default:
			}
			s, err := box.Backlog().Stats(deadline)
			m, err2 := in.Backlog().Stats(deadline)
			return s.Waiting+m.Waiting < 10, errors.Join(err, err2)
		}))
	}
	for c := range alive { // they may kill themselves until here
		_ = c.cmd.Process.Kill() //nolint:errcheck // it may have ended
		<-died
	}
	last := start(t, spec, 0, died)
	must(t, within(deadline, "the rest", func() (bool, error) {
		s, err := box.Backlog().Stats(deadline)
		m, err2 := in.Backlog().Stats(deadline)
		if s.Blocked+s.Dead+m.Blocked+m.Dead > 0 {
			return false, fmt.Errorf("set aside: %+v, %+v", s, m)
		}
		return s.Waiting+s.InHand+m.Waiting+m.InHand == 0, errors.Join(err, err2)
	}))
	must(t, last.stop.Close())
	if c := <-died; !c.cmd.ProcessState.Success() {
		t.Errorf("the last process: %v\n%s", c.cmd.ProcessState, &c.stderr)
	}
	h.auditKills(t, spec.Sink, events, messages)
}

const killKeys = 12

// feed publishes events and takes messages in. Some of the transactions are rolled back, and some messages come twice.
func (h *handle[Tx]) feed(t *testing.T, box *outbox.Outbox[Tx], in *inbox.Inbox[Tx], events, messages *int) {
	t.Helper()
	var batch []outbox.Event
	for range 12 {
		batch = append(batch, outbox.Event{ID: fmt.Sprint("e", *events), Topic: "orders", Key: fmt.Sprint("k", *events%killKeys), Payload: fmt.Append(nil, *events)})
		*events++
	}
	h.publish(t, box, batch...)
	failure := errors.New("rolled back")
	if err := h.receiver.InTx(t.Context(), func(ctx context.Context, tx Tx) error {
		return errors.Join(failure, box.Publish(ctx, tx, outbox.Event{ID: fmt.Sprint("phantom", *events), Topic: "orders"}))
	}); !errors.Is(err, failure) {
		t.Fatal(err)
	}
	for range 5 {
		for range 1 + *messages%2 {
			receive(t, in, &consume.Message{ID: fmt.Sprint("m", *messages), Subject: fmt.Sprint("k", *messages%killKeys), Body: []byte("{}")})
		}
		*messages++
	}
}

// auditKills compares what came with what was published and taken in.
func (h *handle[Tx]) auditKills(t *testing.T, sink string, events, messages int) {
	t.Helper()
	text, err := os.ReadFile(sink)
	must(t, err)
	came, handlers := newArrivals(), 0
	billed := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), " ")
		switch {
		case f[0] == "handler":
			handlers++
		case f[2] == "" && !strings.HasPrefix(f[1], "phantom"): // from a handler
			billed[f[3]] = true
			came.came(&outbox.Event{ID: f[1]})
		default:
			came.came(&outbox.Event{ID: f[1], Key: f[2], Payload: []byte(f[3])})
		}
	}
	n, again, err := came.distinct()
	if err != nil {
		t.Errorf("order: %v", err)
	}
	if n != events+messages || len(billed) != messages {
		t.Errorf("%d different events came, want %d and %d of handlers; %d messages were billed", n, events, messages, len(billed))
	}
	for i := range events {
		if !came.has(fmt.Sprint("e", i)) {
			t.Errorf("event %d is lost", i)
		}
	}
	if again == 0 || handlers == messages {
		t.Error("blind: no event came twice, or no handler ran twice")
	}
	if all, different := h.number(t, "SELECT count(*) FROM effects"), h.number(t, "SELECT count(DISTINCT name) FROM effects"); all != messages || different != messages {
		t.Errorf("%d effects of %d messages, want %d of each", all, different, messages)
	}
	rows, err := h.db.QueryContext(t.Context(), "SELECT name FROM effects ORDER BY seq")
	must(t, err)
	defer rows.Close()
	last := map[int]int{}
	for rows.Next() {
		var name string
		var at int
		must(t, rows.Scan(&name))
		_, err := fmt.Sscanf(name, "m%d", &at)
		must(t, err)
		if before, known := last[at%killKeys]; known && at <= before {
			t.Errorf("message %d was handled after %d", at, before)
		}
		last[at%killKeys] = at
	}
	must(t, rows.Err())
	t.Logf("%d events, of which %d came again; %d messages, handled %d times", events+messages, again, messages, handlers)
}
