package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Ctrl-C while the servers start, which goes to all processes of the terminal, leaves nothing: no server, and no file.
func TestInterruptedWhileServersStart(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "eventpipeline-") //nolint:usetesting // a path that the servers' own users can reach
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it is to be empty
	var said bytes.Buffer
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), programVariable+"=1", "TMPDIR="+dir, rabbitVariable+"=", mongoVariable+"=")
	cmd.Stderr = &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); !strings.Contains(strings.Join(running(t, dir), "\n"), "beam"); {
		if time.Now().After(end) {
			t.Error("the broker does not start")
			break
		}
	}
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(said.String(), "interrupt") {
		t.Errorf("%v: %s", err, said.String())
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left in the folder: %v, %v", left, err)
	}
	for _, command := range running(t, dir) {
		t.Errorf("left running: %.200s", command)
	}
}

// running returns the commands of the processes in whose arguments a folder is.
func running(t *testing.T, dir string) (commands []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if line, _ := os.ReadFile(file); bytes.Contains(line, []byte(dir)) { //nolint:errcheck // it may have ended
			commands = append(commands, string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
		}
	}
	return commands
}
