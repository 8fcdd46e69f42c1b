package main

import (
	"context"
	"debug/elf"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

// The Dockerfile's program needs nothing from its image. Alone in a file system with a folder for temporary files, and
// under an arbitrary user ID, it is a proxy that stores records, and bodies that are too large for memory.
func TestImageNeedsNothing(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	image := regexp.MustCompile(`(?m)^FROM golang:(\S+) AS build\n`).FindSubmatch(text)
	work, err := os.ReadFile(filepath.Join("..", "..", "go.work"))
	if err != nil || image == nil || !strings.HasPrefix(string(work), "go "+string(image[1])+".") {
		t.Errorf("it builds with Go %s, and go.work begins with %.12q (%v)", image, work, err)
	}
	root, err := os.MkdirTemp("", "root") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	program := filepath.Join(root, "everonce")
	run := regexp.MustCompile(`(?m)^RUN (.* -o )/everonce (.*)$`).FindSubmatch(text)
	if run == nil || !strings.Contains(string(text), "\nCOPY --from=build /everonce /everonce\nENTRYPOINT [\"/everonce\"]\n") {
		t.Fatalf("the Dockerfile is\n%s", text)
	}
	build := exec.CommandContext(t.Context(), "sh", "-c", string(run[1])+program+" "+string(run[2]))
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		t.Error("the program is not static: it asks for an interpreter")
	}
	if err := os.Chmod(program, 0o755); err != nil { // whatever the umask
		t.Fatal(err)
	}
	if os.Getuid() != 0 {
		t.Skip("only root can give a process another root folder")
	}

	tmp := filepath.Join(root, "tmp")
	if err := os.Mkdir(tmp, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(tmp, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("unix", filepath.Join(tmp, "service.sock"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(tmp, "service.sock"), 0o777); err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int32
	service := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil || n != 1<<20 {
			t.Errorf("the service got %d bytes, %v", n, err)
		}
		w.WriteHeader(http.StatusCreated)
	}))
	service.Listener.Close()
	service.Listener = ln
	service.Start()
	t.Cleanup(service.Close)

	cmd := exec.Command("/everonce", "proxy", "--listen=unix:/tmp/proxy.sock", "--upstream=unix:/tmp/service.sock", "--store=sqlite:/tmp/proxy.db", "--admin=none")
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	startProxy(t, cmd)
	to := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", filepath.Join(tmp, "proxy.sock"))
	}}
	defer to.CloseIdleConnections()
	for i, marker := range []string{"", "true"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://service/pay", strings.NewReader(strings.Repeat("x", 1<<20)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Idempotency-Key", "k")
		res, err := to.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusCreated || res.Header.Get("Idempotent-Replayed") != marker {
			t.Errorf("request %d: %d %v", i, res.StatusCode, res.Header)
		}
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("the service was called %d times, want once", n)
	}
}
