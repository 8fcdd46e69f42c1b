package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce/examples/internal/docs"
	"github.com/everonce/everonce/examples/internal/program"
	"github.com/everonce/everonce/internal/testserver"
)

// These tests do what docs/tutorials/first-messages.md has its reader do.
const page = "tutorials/first-messages.md"

// reader is somebody with a folder, a broker and the program.
type reader struct {
	t             *testing.T
	dir, queue    string
	file, console string
	broker        string
}

func newReader(t *testing.T) *reader {
	t.Helper()
	broker := testserver.URL(t, "rabbitmq")
	t.Setenv("BROKER_URL", broker)
	t.Setenv("EVERONCE_BROKER", broker)
	r := &reader{t: t, dir: t.TempDir(), queue: "orders." + strings.ToLower(rand.Text()), broker: broker}
	r.file, r.console = program.Build(t, "."), program.Build(t, "../../../cmd/everonce")
	t.Cleanup(r.removeQueues)
	return r
}

func (r *reader) removeQueues() {
	conn, err := amqp.Dial(r.broker)
	if err != nil {
		r.t.Error(err)
		return
	}
	defer conn.Close() //nolint:errcheck // it was only for this
	ch, err := conn.Channel()
	if err != nil {
		r.t.Error(err)
		return
	}
	for _, suffix := range []string{"", ".dead", ".retry.1s", ".retry.5s", ".retry.30s", ".retry.2m", ".retry.10m"} {
		if _, err := ch.QueueDelete(r.queue+suffix, false, false, false); err != nil {
			r.t.Error(err)
		}
	}
}

// says runs the program, and returns what it writes.
func (r *reader) says(args ...string) string {
	r.t.Helper()
	return program.Run(r.t.Context(), r.t, r.dir, r.file, append([]string{"-queue", r.queue}, args...)...)
}

// dlq runs everonce dlq on the reader's queue.
func (r *reader) dlq(args ...string) string {
	r.t.Helper()
	return program.Run(r.t.Context(), r.t, r.dir, r.console, append([]string{"dlq", args[0], "--queue", r.queue}, args[1:]...)...)
}

// worker is a worker that runs.
type worker struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string
}

func (r *reader) work(args ...string) *worker {
	r.t.Helper()
	w := &worker{t: r.t, lines: make(chan string, 1000)}
	w.cmd = exec.CommandContext(context.Background(), r.file, append(append([]string{"-queue", r.queue}, args...), "work")...)
	w.cmd.Dir = r.dir
	stderr, err := w.cmd.StderrPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := w.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if w.cmd.ProcessState == nil {
			w.end(os.Kill)
		}
	})
	go func() {
		defer close(w.lines)
		for scan := bufio.NewScanner(stderr); scan.Scan(); {
			w.lines <- scan.Text()
		}
	}()
	return w
}

// says waits until the worker has written these lines, and nothing else but the consumer's own log.
func (w *worker) says(lines ...string) {
	w.t.Helper()
	for len(lines) > 0 {
		select {
		case line, ok := <-w.lines:
			switch {
			case !ok:
				w.t.Fatalf("the worker ended before it wrote %q", lines[0])
			case line == lines[0]:
				lines = lines[1:]
			case !strings.HasPrefix(line, "INFO consume: ") && !strings.HasPrefix(line, "WARN consume: "):
				w.t.Fatalf("the worker wrote %q, want %q", line, lines[0])
			}
		case <-time.After(time.Minute):
			w.t.Fatalf("the worker has not written %q for a minute", lines[0])
		}
	}
}

// end ends the worker, and returns when it is gone.
func (w *worker) end(signal os.Signal) {
	w.t.Helper()
	if err := w.cmd.Process.Signal(signal); err != nil {
		w.t.Error(err)
	}
	if err := w.cmd.Wait(); err != nil && signal != os.Kill {
		w.t.Error(err)
	}
}

func TestFirstMessages(t *testing.T) {
	r := newReader(t)
	if customer := r.says("customer", "alice"); customer != "" {
		t.Error(customer)
	}

	// Without a queue the message cannot be kept: the publisher gets an error.
	early := exec.CommandContext(t.Context(), r.file, "-queue", r.queue, "publish", "order-0", "alice")
	if out, err := early.CombinedOutput(); err == nil || !strings.Contains(string(out), "start a worker") {
		t.Errorf("published without a queue: %s, %v", out, err)
	}
	w := r.work()

	// Once, and twice.
	w.says("working")
	r.says("publish", "order-1", "alice")
	w.says("order-1 booked, not committed yet", "order-1 executed ack")
	r.says("publish", "order-1", "alice")
	w.says("order-1 replayed ack")
	if got := r.says("list"); got != "order-1 alice\n" {
		t.Errorf("the bookings are %q", got)
	}
	w.end(os.Interrupt)

	// Killed between the insert and the commit.
	w = r.work("-slow", "5s")
	w.says("working")
	r.says("publish", "order-2", "alice")
	w.says("order-2 booked, not committed yet")
	w.end(os.Kill)
	if got := r.says("list"); got != "order-1 alice\n" {
		t.Errorf("the bookings are %q", got)
	}
	w = r.work()
	w.says("working", "order-2 booked, not committed yet", "order-2 executed ack")
	if got := r.says("list"); got != "order-1 alice\norder-2 alice\n" {
		t.Errorf("the bookings are %q", got)
	}

	// A dead letter, and its replay.
	r.says("publish", "order-3", "bob")
	w.says("order-3 failed retry", "order-3 failed retry", "order-3 failed set_aside")
	deadline := time.Now().Add(time.Minute)
	for !strings.Contains(r.dlq("list"), "exhausted") {
		if time.Now().After(deadline) {
			t.Fatal("there is no dead letter")
		}
	}
	r.says("customer", "bob")
	if got := r.dlq("replay", "--yes"); !strings.Contains(got, "1") {
		t.Error(got)
	}
	w.says("order-3 booked, not committed yet", "order-3 executed ack")
	if got := r.says("list"); got != "order-1 alice\norder-2 alice\norder-3 bob\n" {
		t.Errorf("the bookings are %q", got)
	}
	w.end(os.Interrupt)
}

// From an empty folder beside a clone, the page's commands lead to a program that builds.
func TestFirstMessagesFromAnEmptyFolder(t *testing.T) {
	parent := t.TempDir()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(root, filepath.Join(parent, "everonce")); err != nil {
		t.Fatal(err)
	}
	begin, tidy := docs.Blocks(t, page, "sh", "go mod init"), docs.Blocks(t, page, "sh", "go mod tidy")
	if len(begin) != 1 || len(tidy) != 1 {
		t.Fatalf("the tutorial has %d blocks with go mod init and %d with go mod tidy, want one of each", len(begin), len(tidy))
	}
	program.Shell(t, parent, begin[0], "GOWORK=off", "GOFLAGS=-mod=mod")
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(parent, "first-messages")
	if err := os.WriteFile(filepath.Join(dir, "main.go"), source, 0o600); err != nil {
		t.Fatal(err)
	}
	program.Shell(t, dir, tidy[0], "GOWORK=off", "GOFLAGS=-mod=mod")
	program.Shell(t, dir, "go build -o orders .", "GOWORK=off")
}
