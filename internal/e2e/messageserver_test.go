package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/everonce/everonce/internal/testserver"
)

// server is a server of a test's own, which it may kill.
type server struct {
	*testserver.Server
	t       *testing.T
	pidFile string
}

func startServer(t *testing.T, name string) *server {
	t.Helper()
	s := &server{Server: testserver.Start(t, name), t: t, pidFile: "pid"}
	if name == "postgres" {
		s.pidFile = filepath.Join("data", "postmaster.pid")
	}
	return s
}

// kill ends it with SIGKILL, and returns when it is gone.
func (s *server) kill() {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.Dir(), s.pidFile))
	if err != nil {
		s.t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(first))
	if err != nil {
		s.t.Fatalf("the server has no process: %v", err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		s.t.Fatalf("killing the server: %v", err)
	}
	deadline := time.Now().Add(time.Minute)
	for syscall.Kill(pid, 0) == nil {
		if time.Now().After(deadline) {
			s.t.Fatal("the server was killed, and does not end")
		}
		<-time.After(time.Millisecond)
	}
}

// writeDown makes a broker write the names of its queues to disk at once. RabbitMQ does so within a second, and until
// then a kill leaves it with queues that have no leader for ever: a defect of RabbitMQ (rabbitmq/ra#443), which is not
// tested here.
func (s *server) writeDown() {
	s.t.Helper()
	s.Run(`node rabbitmqctl eval '[] = [T || T <- dets:all(), dets:sync(T) =/= ok].'`)
}

// revive starts a broker that was killed. The script does that too, and asks it twice whether it runs, each time by a
// program that takes as long as the broker itself.
func (s *server) revive() {
	s.t.Helper()
	s.Run(`rm -f "$dir/pid" && node rabbitmq-server -detached`)
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if conn, err := dialBroker(s.URL); err == nil {
			conn.cut()
			break
		}
		<-time.After(50 * time.Millisecond)
	}
	s.Up() // what it does where that did not help, or where it is
}
