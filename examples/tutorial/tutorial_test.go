// Package tutorial tests what docs/tutorials/first-charge.md has its reader do, the kills included.
package tutorial

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/everonce/everonce/examples/internal/docs"
	"github.com/everonce/everonce/examples/internal/program"
)

// service is a program of the tutorial, running as a separate process.
type service struct {
	t     *testing.T
	cmd   *exec.Cmd
	url   string
	lines chan string // what it logs
}

// start starts a program in a folder, and returns when it listens.
func start(t *testing.T, file, dir string, args ...string) *service {
	t.Helper()
	s := &service{t: t, lines: make(chan string, 1000)}
	s.cmd = exec.CommandContext(context.Background(), file, append([]string{"-listen", "127.0.0.1:0"}, args...)...)
	s.cmd.Dir = dir
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.cmd.ProcessState == nil {
			s.kill()
		}
	})
	go func() {
		defer close(s.lines)
		for scan := bufio.NewScanner(stderr); scan.Scan(); {
			s.lines <- scan.Text()
		}
	}()
	_, s.url, _ = strings.Cut(s.await("listening at "), "listening at ")
	return s
}

// await waits until the program has logged a text, and returns the line.
func (s *service) await(text string) string {
	s.t.Helper()
	for {
		select {
		case line, ok := <-s.lines:
			if !ok {
				s.t.Fatalf("the program ended before it logged %q", text)
			}
			if strings.Contains(line, text) {
				return line
			}
		case <-time.After(time.Minute):
			s.t.Fatalf("the program has not logged %q for a minute", text)
		}
	}
}

// kill sends SIGKILL, and returns when the process is gone.
func (s *service) kill() {
	s.t.Helper()
	if err := s.cmd.Process.Kill(); err != nil {
		s.t.Error(err)
	}
	_ = s.cmd.Wait()
}

// answer is what a request came to; err where it got none.
type answer struct {
	status int
	body   string
	err    error
}

// charge sends a charge of 12.00 for alice under a key.
func (s *service) charge(key string) answer {
	return s.send(http.MethodPost, "/charge", key, `{"account":"alice","cents":1200}`)
}

func (s *service) send(method, path, key, body string) answer {
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set("Idempotency-Key", key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return answer{status: res.StatusCode, body: strings.TrimSpace(string(text)), err: err}
}

// is checks an answer.
func (a answer) is(t *testing.T, status int, body string) {
	t.Helper()
	if a.err != nil || a.status != status || !strings.Contains(a.body, body) {
		t.Fatalf("the answer is %d %q, %v; want %d with %q", a.status, a.body, a.err, status, body)
	}
}

func (s *service) balance(want int) {
	s.t.Helper()
	a := s.send(http.MethodGet, "/balance/alice", "", "")
	if a.err != nil || a.body != strconv.Itoa(want) {
		s.t.Fatalf("the balance is %d %q, %v; want %d", a.status, a.body, a.err, want)
	}
}

const (
	first  = `{"charged":1200,"balance":8800}`
	second = `{"charged":1200,"balance":7600}`
)

// TestChargeSurvivesKill follows the first half of the tutorial: a charge, the same again, and one in whose
// middle the process is killed.
func TestChargeSurvivesKill(t *testing.T) {
	file, dir := program.Build(t, "charge"), t.TempDir()
	s := start(t, file, dir)
	s.charge("order-1").is(t, 200, first)
	s.charge("order-1").is(t, 200, first)
	s.balance(8800)
	s.send(http.MethodPost, "/charge", "order-1", `{"account":"alice","cents":1}`).is(t, 422, "different request")
	s.kill()

	s = start(t, file, dir, "-slow", "5s")
	killed := make(chan answer, 1)
	go func() { killed <- s.charge("order-2") }()
	s.await("charged, not committed yet")
	s.kill()
	if a := <-killed; a.err == nil {
		t.Fatalf("the killed service answered %d %q", a.status, a.body)
	}

	s = start(t, file, dir)
	s.balance(8800) // what did not commit did not happen
	s.charge("order-2").is(t, 200, second)
	s.charge("order-2").is(t, 200, second)
	s.balance(7600)
}

// TestMailSurvivesKill follows the second half: the process is killed after a mail has gone out and before
// that is recorded.
func TestMailSurvivesKill(t *testing.T) {
	file, dir := program.Build(t, "mail"), t.TempDir()
	s := start(t, file, dir)
	s.charge("order-1").is(t, 200, first)
	s.charge("order-1").is(t, 200, first)
	mails(t, dir, 1)
	s.kill()

	s = start(t, file, dir, "-slow", "1m")
	killed := make(chan answer, 1)
	go func() { killed <- s.charge("order-2") }()
	s.await("mail sent, not recorded yet")
	s.kill()
	<-killed

	s = start(t, file, dir)
	s.balance(7600) // the step "charge" had committed
	a := s.charge("order-2")
	for deadline := time.Now().Add(time.Minute); a.status == http.StatusConflict && time.Now().Before(deadline); {
		time.Sleep(100 * time.Millisecond) // as a client does; the dead process's lease ends on its own
		a = s.charge("order-2")
	}
	a.is(t, 500, `step "mail"`)
	s.charge("order-2").is(t, 500, "outcome unknown")
	mails(t, dir, 2)
	s.balance(7600)

	settle(t, dir)
	s.charge("order-2").is(t, 200, second)
	s.charge("order-2").is(t, 200, second)
	mails(t, dir, 2)
	s.balance(7600)
}

// mails counts what the mail server has.
func mails(t *testing.T, dir string, want int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "mails.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(string(text), "\n"); got != want {
		t.Fatalf("%d mails were sent, want %d:\n%s", got, want, text)
	}
}

// settle runs the commands of the tutorial's section on settling, as they stand there.
func settle(t *testing.T, dir string) {
	t.Helper()
	tool := program.Build(t, "../../cmd/everonce")
	bin := t.TempDir()
	if err := os.Symlink(tool, filepath.Join(bin, "everonce")); err != nil {
		t.Fatal(err)
	}
	path := "PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH")
	commands := docs.Blocks(t, page, "sh", "everonce keys")
	if len(commands) != 2 {
		t.Fatalf("the tutorial has %d blocks with the commands of everonce, want list and settle", len(commands))
	}
	for i, want := range []string{"mail", "settled as done"} {
		if got := program.Shell(t, dir, commands[i], path); !strings.Contains(got, want) {
			t.Fatalf("%s\nprinted %q, want %q in it", commands[i], got, want)
		}
	}
}

const page = "tutorials/first-charge.md"

// TestFromAnEmptyFolder runs the tutorial's commands that make a module, beside a clone, and builds both
// programs in it.
func TestFromAnEmptyFolder(t *testing.T) {
	parent := t.TempDir()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(root, filepath.Join(parent, "everonce")); err != nil {
		t.Fatal(err)
	}
	begin := docs.Blocks(t, page, "sh", "go mod init")
	tidy := docs.Blocks(t, page, "sh", "go mod tidy")
	if len(begin) != 1 || len(tidy) != 1 {
		t.Fatalf("the tutorial has %d blocks with go mod init and %d with go mod tidy, want one of each", len(begin), len(tidy))
	}
	env := []string{"GOWORK=off", "GOFLAGS=-mod=mod"}
	program.Shell(t, parent, begin[0], env...)
	dir := filepath.Join(parent, "first-charge")
	for _, name := range []string{"charge", "mail"} {
		source, err := os.ReadFile(filepath.Join(name, "main.go"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "main.go"), source, 0o600); err != nil {
			t.Fatal(err)
		}
		program.Shell(t, dir, tidy[0], env...)
		program.Shell(t, dir, "go build -o first-charge .", "GOWORK=off")
	}
}
