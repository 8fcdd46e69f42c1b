package testserver

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Server is a process on this machine, never a container.
type Server struct {
	// URL is where it is; it stays there.
	URL string

	t               testing.TB
	name, dir, file string // the script
}

// Start starts a server, by its name in scripts/services.d. After the test it is stopped, and its data are gone.
func Start(t testing.TB, name string) *Server {
	t.Helper()
	s := &Server{t: t, name: name, file: script(t)}
	var err error
	if s.dir, err = os.MkdirTemp("", "everonce-own-"); err != nil { //nolint:usetesting // a short path, which the server's own user can reach
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.services("down")
		if err := os.RemoveAll(s.dir); err != nil {
			t.Error(err)
		}
	})
	s.Up()
	return s
}

// script is the repository's, of which a test runs in a folder below it.
func script(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		file := filepath.Join(dir, "scripts", "services")
		if _, err := os.Stat(file); err == nil {
			return file
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("there is no scripts/services above this test")
		}
	}
}

// Up starts it where it has ended, with its data, and returns when it answers.
func (s *Server) Up() {
	s.t.Helper()
	s.services("up")
	s.found()
}

// found makes sure that it is where it was.
func (s *Server) found() {
	s.t.Helper()
	url := s.bash(`eval "$("$0" env "$1")" && printf %s "${!variable}"`)
	if s.URL != "" && url != s.URL {
		s.t.Fatalf("%s is not where it was", s.name)
	}
	s.URL = url
}

// Restart kills it, and starts it again.
func (s *Server) Restart() {
	s.t.Helper()
	s.services("restart")
	s.found()
}

// Run runs a command of bash, in which the functions of the server's own file in scripts/services.d are known, and its
// programs were found; with what follows as its arguments.
func (s *Server) Run(command string, args ...string) {
	s.t.Helper()
	s.bash(`shift; native_find && { `+command+`; } || { tail -n 5 "$dir/log" >&2; exit 1; }`, args...)
}

// Dir is its folder.
func (s *Server) Dir() string { return filepath.Join(s.dir, s.name) }

func (s *Server) bash(command string, args ...string) string {
	s.t.Helper()
	prelude := `dir=` + s.Dir() + `; . "$(dirname "$0")/services.d/$1.sh"; `
	return s.run("bash", append([]string{"-c", prelude + command, s.file, s.name}, args...)...)
}

func (s *Server) services(command string) {
	s.t.Helper()
	s.run(s.file, command, s.name)
}

func (s *Server) run(program string, args ...string) string {
	s.t.Helper()
	cmd := exec.CommandContext(context.Background(), program, args...) // a test's own has ended when its server is stopped
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
		s.t.Fatalf("%s: %v: %v: %s", s.name, cmd.Args, err, said.String())
	}
	return string(out)
}
