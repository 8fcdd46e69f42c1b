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
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/backlog"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/saga"
)

// sagaRunnerVariable makes a process of this test a runner that dies: it holds a [runnerSpec].
const sagaRunnerVariable = "EVERONCE_TEST_SAGA_RUNNER"

// runnerSpec is the settings of a runner's process. It does its action at the so many-th point that it reaches.
type runnerSpec struct {
	SQLite, Postgres, MariaDB, Schema string
	// KillAt: it kills itself.
	KillAt int
	// PauseAt is the point at which it stops, as a machine does that is suspended.
	PauseAt string
	Lease   time.Duration
}

// points are the places at which a runner is killed, or paused.
type points struct {
	runnerSpec
	said    io.Writer
	reached atomic.Int64
	paused  atomic.Bool
}

func (p *points) reach(point string) {
	switch {
	case p == nil:
	case point == p.PauseAt && p.paused.CompareAndSwap(false, true):
		fmt.Fprintln(p.said, "paused")
		syscall.Kill(os.Getpid(), syscall.SIGSTOP) //nolint:errcheck // the test waits in vain then
		time.Sleep(100 * time.Millisecond)         // until all threads have heard of it: this one may go on for a moment
	case p.KillAt > 0 && int(p.reached.Add(1)) == p.KillAt:
		syscall.Kill(os.Getpid(), syscall.SIGKILL) //nolint:errcheck // as above
		select {}
	}
}

// killedSteps are steps in the database, and at a participant, some of which refuse.
func killedSteps[Tx any](h *handle[Tx], part *saga.Participant[Tx], p *points) []saga.Step[sagaOrder, Tx] {
	write := func(ctx context.Context, tx Tx, what, id string) error {
		err := h.exec(ctx, tx, "INSERT INTO effects (name) VALUES ($1)", what+" "+id)
		p.reach(what)
		return err
	}
	refuses := func(c *saga.Call[sagaOrder]) error {
		if c.Input.Item == c.Step {
			return everonce.Permanent("no", errors.New("refused"), nil)
		}
		return nil
	}
	retry := consume.RetryPolicy{Limit: 50, Min: time.Millisecond, Max: 5 * time.Millisecond}
	local := func(name string) saga.Step[sagaOrder, Tx] {
		return saga.Step[sagaOrder, Tx]{
			Name: name, Retry: retry,
			ActionTx: func(ctx context.Context, tx Tx, c *saga.Call[sagaOrder]) (any, error) {
				return nil, errors.Join(refuses(c), write(ctx, tx, name, c.Saga))
			},
			CompensationTx: func(ctx context.Context, tx Tx, c *saga.Call[sagaOrder]) error {
				return write(ctx, tx, "undo-"+name, c.Saga)
			},
		}
	}
	remote := func(name string) saga.Step[sagaOrder, Tx] {
		return saga.Step[sagaOrder, Tx]{
			Name: name, Retry: retry,
			Action: func(ctx context.Context, c *saga.Call[sagaOrder]) (any, error) {
				p.reach("before " + name)
				_, err := saga.Action(ctx, part, c.Branch(), func(ctx context.Context, tx Tx) (int, error) {
					return 1, errors.Join(refuses(c), write(ctx, tx, name, c.Saga))
				})
				p.reach("after " + name)
				return nil, err
			},
			Compensation: func(ctx context.Context, c *saga.Call[sagaOrder]) error {
				p.reach("before undo-" + name)
				err := part.Compensate(ctx, c.Branch(), func(ctx context.Context, tx Tx) error { return write(ctx, tx, "undo-"+name, c.Saga) })
				p.reach("after undo-" + name)
				return err
			},
		}
	}
	steps := []saga.Step[sagaOrder, Tx]{local("a"), remote("b"), remote("c"), local("d"), remote("e"), local("f")}
	steps[2].Concurrent = true
	steps[5].Final, steps[5].CompensationTx = true, nil
	return steps
}

// killedItems say which step refuses.
var killedItems = []string{"", "", "b", "c", "d", "e", "f"}

// killedSagas are what the processes of a test share.
func killedSagas[Tx any](t testing.TB, h *handle[Tx], p *points) (*saga.Sagas[Tx], *saga.Definition[sagaOrder, Tx]) {
	t.Helper()
	sagas := newSagas(t, h)
	part, err := saga.NewParticipant(h.receiver, "part", everonce.Lifetime{})
	if err != nil {
		t.Fatal(err)
	}
	d, err := saga.Define("killed", 1, killedSteps(h, part, p)...)
	if err != nil {
		t.Fatal(err)
	}
	return sagas, d
}

// TestSagaRunnerProcess is no test, but the process of a runner that is killed.
func TestSagaRunnerProcess(t *testing.T) {
	told := os.Getenv(sagaRunnerVariable)
	if told == "" {
		return
	}
	p := &points{said: os.Stdout}
	if err := json.Unmarshal([]byte(told), &p.runnerSpec); err != nil {
		t.Fatal(err)
	}
	switch {
	case p.SQLite != "":
		runKilled(t, openSQLite(t, p.SQLite), p)
	case p.MariaDB != "":
		runKilled(t, mariaDBHandle(t, p.MariaDB, p.Schema), p)
	default:
		runKilled(t, openPgx(t, p.Postgres, p.Schema), p)
	}
}

// runKilled runs sagas until it is killed, and starts new ones as long as there are few.
func runKilled[Tx any](t *testing.T, h *handle[Tx], p *points) {
	sagas, d := killedSagas(t, h, p)
	verdicts := make(chan saga.Report, 1000)
	runner, err := sagas.Runner(&saga.RunnerOptions{
		Concurrency: 4, Lease: p.Lease, Poll: 10 * time.Millisecond,
		Observe: func(_ context.Context, v saga.Report) { p.reach("between"); verdicts <- v },
	}, d)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		io.Copy(io.Discard, os.Stdin) //nolint:errcheck // wait for its end
		cancel()
	}()
	var running sync.WaitGroup
	running.Go(func() {
		defer close(verdicts)
		defer cancel()
		if err := runner.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer running.Wait()
	for p.PauseAt == "" && ctx.Err() == nil {
		n, err := sagas.Backlog().Count(ctx, backlog.Filter{States: []backlog.State{backlog.Pending, backlog.InHand}})
		if err != nil {
			t.Fatal(err)
		}
		for ; n < 8; n++ {
			startSaga(t, h, sagas, d, fmt.Sprint("s-", rand.Int64()), sagaOrder{killedItems[rand.IntN(len(killedItems))]})
		}
		runner.Wake()
		for v := range verdicts {
			if ended(v) {
				break
			}
		}
	}
	for v := range verdicts {
		fmt.Println("verdict", v.Status, v.Err)
	}
}

// runnerProcess starts a runner in a separate process. out is its output.
func runnerProcess(t *testing.T, spec runnerSpec) (cmd *exec.Cmd, out *bufio.Scanner) {
	t.Helper()
	told, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSagaRunnerProcess$", "-test.timeout=1m")
	cmd.Env = append(os.Environ(), sagaRunnerVariable+"="+string(told))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe() // it ends with this process
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(pipe)
}

func byKill(err error) bool {
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signal() == syscall.SIGKILL
}

func TestSagaKills(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "once.db")
		testSagaKills(t, openSQLite(t, file), runnerSpec{SQLite: file})
	})
	t.Run("pgx", func(t *testing.T) {
		t.Parallel()
		url, name := schema(t)
		testSagaKills(t, openPgx(t, url, name), runnerSpec{Postgres: url, Schema: name})
	})
	onMySQLServers(t, func(t *testing.T, server string) {
		address, name, h := onDatabase(t, server)
		testSagaKills(t, h, runnerSpec{MariaDB: address, Schema: name})
	})
}

// Runners are killed in the middle of actions and compensations, and between: every saga ends, with each effect once.
func testSagaKills[Tx any](t *testing.T, h *handle[Tx], spec runnerSpec) {
	cycles := 1000
	if testing.Short() {
		cycles = 20
	}
	spec.Lease = 500 * time.Millisecond
	sagas, d := killedSagas(t, h, nil)
	for range cycles {
		spec.KillAt = 1 + rand.IntN(50)
		cmd, out := runnerProcess(t, spec)
		for out.Scan() {
			t.Log(out.Text())
		}
		if err := cmd.Wait(); !byKill(err) {
			t.Fatal(err)
		}
	}
	await := ran(t, sagas, d)
	for {
		n, err := sagas.Backlog().Count(t.Context(), backlog.Filter{States: []backlog.State{backlog.Pending, backlog.InHand, backlog.Blocked}})
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
		if v := await(func(v saga.Report) bool { return ended(v) || waits(v) }); waits(v) { // so many of its runners were killed
			if _, err := sagas.Backlog().Retry(t.Context(), backlog.Filter{ID: v.ID}); err != nil {
				t.Fatal(err)
			}
		}
	}
	statuses, all := map[saga.Status]int{}, map[string]saga.Status{}
	entries, err := sagas.Backlog().List(t.Context(), backlog.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		got, err := sagas.Get(t.Context(), e.ID)
		if err != nil {
			t.Fatal(err)
		}
		all[e.ID] = got.Status
		statuses[got.Status]++
	}
	for _, wrong := range auditSagas(all, h.effects(t), []string{"a", "b", "c", "d", "e", "f"}) {
		t.Error(wrong)
	}
	if statuses[saga.Completed] == 0 || statuses[saga.Compensated] == 0 {
		t.Errorf("%v after %d kills", statuses, cycles)
	}
	t.Logf("%v after %d kills", statuses, cycles)
}

// effects returns how often each effect is in the database: by "what saga".
func (h *handle[Tx]) effects(t testing.TB) map[string]int {
	t.Helper()
	rows, err := h.db.QueryContext(t.Context(), "SELECT name, count(*) FROM effects GROUP BY name")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	found := make(map[string]int)
	for rows.Next() {
		var name string
		var n int
		if err := rows.Scan(&name, &n); err != nil {
			t.Fatal(err)
		}
		found[name] = n
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return found
}

// auditSagas says what is wrong with sagas that have ended, by their effects: each action once, and, if and only if the
// saga was compensated, its compensation once.
func auditSagas(sagas map[string]saga.Status, effects map[string]int, steps []string) (wrong []string) {
	for what, n := range effects {
		_, id, _ := strings.Cut(what, " ")
		if n > 1 || sagas[id] == "" {
			wrong = append(wrong, fmt.Sprintf("%s: %d times, the saga is %q", what, n, sagas[id]))
		}
	}
	for id, status := range sagas {
		if status != saga.Completed && status != saga.Compensated {
			wrong = append(wrong, fmt.Sprintf("%s has not ended: %s", id, status))
		}
		for _, step := range steps {
			done, undone := effects[step+" "+id], effects["undo-"+step+" "+id]
			switch {
			case status == saga.Completed && (done == 0 || undone > 0), status == saga.Compensated && done != undone:
				wrong = append(wrong, fmt.Sprintf("%s is %s: %s was done %d times, and undone %d times", id, status, step, done, undone))
			}
		}
	}
	return wrong
}

// A step without an answer is compensated. One who compensates only what has answered is caught by the audit.
func TestSagaWithoutAnAnswer(t *testing.T) {
	onAll(t, testSagaWithoutAnAnswer[pgx.Tx], testSagaWithoutAnAnswer[*sql.Tx])
}

func testSagaWithoutAnAnswer[Tx any](t *testing.T, h *handle[Tx]) {
	part, err := saga.NewParticipant(h.receiver, "part", everonce.Lifetime{})
	if err != nil {
		t.Fatal(err)
	}
	write := func(what, id string) func(ctx context.Context, tx Tx) error {
		return func(ctx context.Context, tx Tx) error {
			return h.exec(ctx, tx, "INSERT INTO effects (name) VALUES ($1)", what+" "+id)
		}
	}
	// Of b every answer gets lost.
	act := func(ctx context.Context, b saga.Branch) error {
		_, err := saga.Action(ctx, part, b, func(ctx context.Context, tx Tx) (int, error) { return 1, write(b.Step, b.Saga)(ctx, tx) })
		if b.Step == "b" {
			return errors.Join(err, errors.New("no answer"))
		}
		return err
	}
	back := func(ctx context.Context, b saga.Branch) error {
		return part.Compensate(ctx, b, write("undo-"+b.Step, b.Saga))
	}

	naive := func(id string) saga.Status {
		var completed []string
		for _, step := range []string{"a", "b"} {
			if err := act(t.Context(), saga.Branch{Saga: id, Step: step}); err != nil {
				for _, done := range completed { // that is the bug
					if err := back(t.Context(), saga.Branch{Saga: id, Step: done, Compensating: true}); err != nil {
						t.Fatal(err)
					}
				}
				return saga.Compensated
			}
			completed = append(completed, step)
		}
		return saga.Completed
	}
	sagas := newSagas(t, h)
	d := define(t, "no-answer", &world{}, func(steps map[string]*saga.Step[sagaOrder, Tx]) {
		for _, s := range steps {
			s.Action = func(ctx context.Context, c *saga.Call[sagaOrder]) (any, error) { return nil, act(ctx, c.Branch()) }
			s.Compensation = func(ctx context.Context, c *saga.Call[sagaOrder]) error { return back(ctx, c.Branch()) }
		}
	}, "a", "b")
	startSaga(t, h, sagas, d, "right", sagaOrder{})
	right := ran(t, sagas, d)(ended).Status
	if wrong := auditSagas(map[string]saga.Status{"right": right}, h.effects(t), []string{"a", "b"}); right != saga.Compensated || len(wrong) > 0 {
		t.Errorf("%s: %v", right, wrong)
	}
	both := map[string]saga.Status{"right": right, "naive": naive("naive")}
	if wrong := auditSagas(both, h.effects(t), []string{"a", "b"}); len(wrong) != 1 || !strings.Contains(wrong[0], "naive is compensated: b") {
		t.Errorf("the audit says %v", wrong)
	}
}

// A runner that was paused past its lease, in a transaction or before one, does no step in the database that another
// has done since. (With SQLite a process that is stopped may keep all others from writing.)
func TestSagaPausedRunner(t *testing.T) {
	t.Parallel()
	points := []string{"after e", "d", "after undo-b", "undo-a"}
	t.Run("pgx", func(t *testing.T) {
		t.Parallel()
		url, name := schema(t)
		testSagaPausedRunner(t, openPgx(t, url, name), runnerSpec{Postgres: url, Schema: name}, points...)
	})
	onMySQLServers(t, func(t *testing.T, server string) {
		address, name, h := onDatabase(t, server)
		testSagaPausedRunner(t, h, runnerSpec{MariaDB: address, Schema: name}, points...)
	})
}

func testSagaPausedRunner[Tx any](t *testing.T, h *handle[Tx], spec runnerSpec, at ...string) {
	sagas, d := killedSagas(t, h, nil)
	all := map[string]saga.Status{}
	for _, point := range at {
		t.Run(point, func(t *testing.T) { // its runner ends with it
			spec.PauseAt, spec.Lease = point, time.Second
			item := ""
			if strings.Contains(point, "undo") {
				item = "e"
			}
			id := strings.ReplaceAll(point, " ", "-")
			startSaga(t, h, sagas, d, id, sagaOrder{item})
			cmd, out := runnerProcess(t, spec)
			for out.Scan() && out.Text() != "paused" { // on a busy machine it may lose the lease before
				t.Log(out.Text())
			}
			all[id] = ran(t, sagas, d)(isOf(id, ended)).Status
			if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			if !out.Scan() || !strings.HasPrefix(out.Text(), "verdict") { // it lets go of the saga
				t.Errorf("%q, %v", out.Text(), out.Err())
			}
			cmd.Process.Kill() //nolint:errcheck // as Wait says
			if err := cmd.Wait(); !byKill(err) {
				t.Error(err)
			}
		})
	}
	for _, wrong := range auditSagas(all, h.effects(t), []string{"a", "b", "c", "d", "e", "f"}) {
		t.Error(wrong)
	}
}
