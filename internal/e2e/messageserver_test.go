package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// server is a server of a test's own, from the program that scripts/services starts on this machine, so that it may be
// killed.
type server struct {
	t         *testing.T
	name, dir string
	pidFile   string
	url       string
}

// startServer starts one, whose data are gone after the test.
func startServer(t *testing.T, name string) *server {
	t.Helper()
	s := &server{t: t, name: name, pidFile: "pid"}
	if name == "postgres" {
		s.pidFile = filepath.Join("data", "postmaster.pid")
	}
	var err error
	if s.dir, err = os.MkdirTemp("", "everonce-e2e-"); err != nil { //nolint:usetesting // a path that the server's own user can reach, and a short one
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.services("down", name)
		if err := os.RemoveAll(s.dir); err != nil {
			t.Error(err)
		}
	})
	s.start()
	return s
}

// start starts it, or starts it again with its data, and returns when it answers.
func (s *server) start() {
	s.t.Helper()
	s.services("up", s.name)
	variable := "EVERONCE_TEST_" + strings.ToUpper(s.name) + "_URL"
	out := s.run(exec.Command("bash", "-c", `eval "$("$0" env "$1")" && printf %s "${!2}"`, servicesScript, s.name, variable))
	if s.url != "" && out != s.url {
		s.t.Fatalf("%s is not where it was", s.name)
	}
	s.url = out
}

// kill ends it with SIGKILL, and returns when it is gone.
func (s *server) kill() {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, s.name, s.pidFile))
	if err != nil {
		s.t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(first))
	if err != nil {
		s.t.Fatalf("%s has no process: %v", s.name, err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		s.t.Fatalf("killing %s: %v", s.name, err)
	}
	deadline := time.Now().Add(time.Minute)
	for syscall.Kill(pid, 0) == nil {
		if time.Now().After(deadline) {
			s.t.Fatalf("%s was killed, and does not end", s.name)
		}
		<-time.After(time.Millisecond)
	}
}

// writeDown makes a broker write down the names of its queues at once. RabbitMQ does so within a second, and until then a kill
// leaves it with queues that have no leader for ever: a defect of its own (rabbitmq/ra#443), which is not what is tested here.
func (s *server) writeDown() {
	s.t.Helper()
	s.node(`node rabbitmqctl eval '[] = [T || T <- dets:all(), dets:sync(T) =/= ok].'`)
}

// revive starts a broker that was killed. The script does that too, and asks it twice whether it runs, each time by a program
// that takes as long as the broker itself.
func (s *server) revive() {
	s.t.Helper()
	s.node(`rm -f "$dir/pid" && node rabbitmq-server -detached`)
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if conn, err := dialBroker(s.url); err == nil {
			conn.cut()
			break
		}
		<-time.After(50 * time.Millisecond)
	}
	s.start() // what it does where that did not help, or where it is
}

// node runs a command with the functions of the broker's own script.
func (s *server) node(command string) {
	s.t.Helper()
	script := `dir=$EVERONCE_SERVICES_DIR/rabbitmq; . ../../scripts/services.d/rabbitmq.sh; native_find && ` + command + ` || { tail -n 5 "$dir/log" >&2; exit 1; }`
	s.run(exec.Command("bash", "-c", script))
}

var servicesScript = filepath.Join("..", "..", "scripts", "services")

// services runs the repository's script on the server's own folder.
func (s *server) services(args ...string) string {
	s.t.Helper()
	return s.run(exec.Command(servicesScript, args...))
}

func (s *server) run(cmd *exec.Cmd) string {
	s.t.Helper()
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "EVERONCE_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "EVERONCE_SERVICES_DIR="+s.dir, "EVERONCE_NO_DOCKER=1")
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("%v: %v: %s", cmd.Args, err, said.String())
	}
	return string(out)
}

// named returns the URL of a server that all tests share.
func named(t *testing.T, variable string) string {
	t.Helper()
	u := os.Getenv(variable)
	if u == "" {
		t.Fatalf(`no server to test with: run scripts/services up, then eval "$(scripts/services env)", or set %s`, variable)
	}
	return u
}
