package tutorial

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/everonce/everonce/examples/internal/docs"
	"github.com/everonce/everonce/examples/internal/program"
)

const sessionPage = "tutorials/session-over-http.md"

// commands returns the block of the tutorial that has this text, for a service.
func (s *service) commands(with string) string {
	s.t.Helper()
	blocks := docs.Blocks(s.t, sessionPage, "sh", with)
	if len(blocks) != 1 {
		s.t.Fatalf("the tutorial has %d blocks with %q, want one", len(blocks), with)
	}
	return strings.ReplaceAll(blocks[0], "http://127.0.0.1:8080", s.url)
}

// shell runs the tutorial's commands that have this text, in a shell that knows the secret and how to charge.
func (s *service) shell(with string) string {
	s.t.Helper()
	return strings.ReplaceAll(program.Shell(s.t, s.cmd.Dir, s.known()+s.commands(with)), "\r", "")
}

func (s *service) known() string {
	return "secret=c2VjcmV0LW9mLXR1dG9yaWFs\n" + s.commands("charge() {")
}

// TestSessionByHand follows the first half of docs/tutorials/session-over-http.md with its commands: a session, a
// request twice, one in whose middle the process is killed, and a mark.
func TestSessionByHand(t *testing.T) {
	file, dir := program.Build(t, "session"), t.TempDir()
	s := start(t, file, dir)
	if got := s.shell("curl -i"); !strings.Contains(got, "201 Created") || !strings.Contains(got, "Idempotency-Session: 1\n") || !strings.Contains(got, "Idempotency-Session-Lease: 3600\n") {
		t.Fatalf("the registration got %s", got)
	}
	if got, want := s.shell("charge 1 0\ncharge 1 0"), `{"charged":1200,"balance":8800}
{"charged":1200,"balance":8800}
8800
`; got != want {
		t.Fatalf("got %s", got)
	}
	s.kill()

	s = start(t, file, dir, "-slow", "5s")
	cmd := exec.CommandContext(t.Context(), "bash", "-c", s.known()+"charge 2 0")
	killed := make(chan error, 1)
	go func() { killed <- cmd.Run() }()
	s.await("charged, not committed yet")
	s.kill()
	if err := <-killed; err == nil {
		t.Fatal("the killed service has answered")
	}

	s = start(t, file, dir)
	if got, want := s.shell("charge 2 0\ncharge 2 0"), `8800
{"charged":1200,"balance":7600}
{"charged":1200,"balance":7600}
2
`; got != want {
		t.Fatalf("got %s", got)
	}
	got := s.shell("charge 3 2")
	for _, want := range []string{`{"charged":1200,"balance":6400}`, "1\n", `"title":"The request's number is below the mark","status":410`} {
		if !strings.Contains(got, want) {
			t.Errorf("got %s, want %s in it", got, want)
		}
	}
}

// TestSessionClientSurvivesKill follows the second half: the client sends a hundred charges while the service is
// killed.
func TestSessionClientSurvivesKill(t *testing.T) {
	file, sender, dir := program.Build(t, "session"), program.Build(t, "sessionclient"), t.TempDir()
	s := start(t, file, dir, "-slow", "10ms")
	cmd := exec.CommandContext(t.Context(), sender, "-url", s.url)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	address := strings.TrimPrefix(s.url, "http://")
	for range 3 {
		for range 5 {
			s.await("charged, not committed yet")
		}
		s.kill()
		s = start(t, file, dir, "-slow", "10ms", "-listen", address)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the client: %v, %s", err, out.String())
	}
	if out.String() != "100 charged, 0 unknown\n" {
		t.Errorf("the client says %s", out.String())
	}
	s.balance(9000)
	if got := s.shell("charges/pay-17"); got != "1\n" {
		t.Errorf("the order was charged %q times", got)
	}
	s.send(http.MethodGet, "/kept", "", "").is(t, 200, "0")
}

// TestSessionFromAnEmptyFolder runs the tutorial's commands that make a module, beside a clone, and builds both
// programs.
func TestSessionFromAnEmptyFolder(t *testing.T) {
	parent := t.TempDir()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(root, filepath.Join(parent, "everonce")); err != nil {
		t.Fatal(err)
	}
	begin, build := docs.Blocks(t, sessionPage, "sh", "go mod init"), docs.Blocks(t, sessionPage, "sh", "cp ../everonce")
	if len(begin) != 1 || len(build) != 1 {
		t.Fatalf("the tutorial has %d blocks with go mod init and %d with cp, want one of each", len(begin), len(build))
	}
	env := []string{"GOWORK=off", "GOFLAGS=-mod=mod"}
	program.Shell(t, parent, begin[0], env...)
	program.Shell(t, filepath.Join(parent, "session-over-http"), build[0], env...)
}
