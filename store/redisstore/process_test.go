package redisstore_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/everonce/everonce/internal/testing/testserver"
)

// process is a server that one test has for itself, and may kill.
type process struct {
	dir  string
	port int
	args []string
	env  []string
	cmd  *exec.Cmd
	over <-chan struct{} // closed when it has ended, and its children have
}

// startServer starts a server with an append-only file that is synced before each answer, unless args say otherwise.
func startServer(t testing.TB, args ...string) *process {
	t.Helper()
	return startServerIn(t, nil, args...)
}

// startServerIn starts a server with additional environment variables.
func startServerIn(t testing.TB, env []string, args ...string) *process {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("redis-server is not on PATH: this test starts and kills one; install the package redis-server")
	}
	p := &process{dir: t.TempDir(), args: args, env: env}
	for range 5 { // another process may take the port first
		p.port = testserver.FreePort(t)
		if p.start(t) {
			t.Cleanup(func() { p.kill(t) })
			return p
		}
	}
	t.Fatal("redis-server does not start")
	return nil
}

// start starts the server, with the data that it had, and reports whether it answers.
func (p *process) start(t testing.TB) bool {
	t.Helper()
	ended := p.launch(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		if client, err := rueidis.NewClient(p.option()); err == nil {
			err = client.Do(ctx, client.B().Ping().Build()).Error()
			client.Close()
			if err == nil {
				return true
			}
		}
		select {
		case <-again.C:
		case <-ended:
			return false
		case <-ctx.Done():
			t.Fatalf("the server at port %d does not answer", p.port)
		}
	}
}

// launch starts the server, and does not wait for it. The channel is closed when it has ended.
func (p *process) launch(t testing.TB) <-chan struct{} {
	t.Helper()
	args := []string{
		"--bind", "127.0.0.1", "--port", strconv.Itoa(p.port), "--dir", p.dir, "--save", "", "--appendonly", "yes",
		"--appendfsync", "always", "--logfile", "server.log",
	}
	p.cmd = exec.Command("redis-server", append(args, p.args...)...) //nolint:gosec // the test's own arguments
	p.cmd.Env = append(os.Environ(), p.env...)
	p.cmd.Stdout = io.Discard // its children have it too: a dump that is being written outlives the server
	noErr(t, p.cmd.Start())
	ended := make(chan struct{})
	go func() {
		_ = p.cmd.Wait() //nolint:errcheck // it is killed
		close(ended)
	}()
	p.over = ended
	return ended
}

// kill is a crash: SIGKILL.
func (p *process) kill(t testing.TB) {
	t.Helper()
	_ = p.cmd.Process.Kill() //nolint:errcheck // it may be dead
	<-p.over
}

// restart starts a server that was killed.
func (p *process) restart(t testing.TB) {
	t.Helper()
	for range 10 {
		if p.start(t) {
			return
		}
	}
	t.Fatal("the server does not start again")
}

func (p *process) addr() string { return fmt.Sprintf("127.0.0.1:%d", p.port) }

// option has one connection, of which reconnected can tell that it is new.
func (p *process) option() rueidis.ClientOption {
	return rueidis.ClientOption{InitAddress: []string{p.addr()}, ForceSingleClient: true, DisableCache: true, PipelineMultiplex: -1}
}

func (p *process) client(t testing.TB) rueidis.Client {
	t.Helper()
	return dial(t, p.option())
}

// reconnected waits until a client has noticed that its server was restarted: the first use of its old connection
// fails.
func reconnected(t testing.TB, client rueidis.Client) {
	t.Helper()
	for client.Do(t.Context(), client.B().Ping().Build()).Error() != nil {
		if t.Context().Err() != nil {
			t.Fatal("the client does not find its server again")
		}
	}
}

// command sends any command.
func command(t testing.TB, client rueidis.Client, words ...string) rueidis.RedisResult {
	t.Helper()
	res := client.Do(t.Context(), client.B().Arbitrary(words...).Build())
	if err := res.Error(); err != nil && !rueidis.IsRedisNil(err) {
		t.Fatalf("%s: %v", words[0], err)
	}
	return res
}

// pause makes the server hang, and skipFailed ends that.
func (p *process) pause() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }

func (p *process) skipFailed() error { return p.cmd.Process.Signal(syscall.SIGCONT) }
