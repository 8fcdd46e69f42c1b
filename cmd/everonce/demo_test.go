package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// program makes this test binary run as the program, with its temporary files in a folder of the test's.
func program(t *testing.T, args ...string) (cmd *exec.Cmd, temp string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	temp = t.TempDir()
	cmd = exec.CommandContext(t.Context(), self, args...)
	cmd.Args[0] = "everonce"
	cmd.Env = append(os.Environ(), "TMPDIR="+temp, "GORACE="+noRaceSleep)
	return cmd, temp
}

// TestDemo runs the demo, small, and holds its one object against what it promises.
func TestDemo(t *testing.T) {
	t.Parallel()
	cmd, temp := program(t, "demo", "--json", "--operations", "60", "--kills", "2", "--seed", "1")
	var out, progress bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &progress
	started := time.Now()
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &progress)
	}
	took := time.Since(started)

	type without struct {
		Effects      *int `json:"effects"`
		Doubled      *int `json:"doubled"`
		Lost         *int `json:"lost"`
		Mails        *int `json:"mails"`
		MailsDoubled *int `json:"mails_doubled"`
	}
	type with struct {
		Effects      *int `json:"effects"`
		Doubled      *int `json:"doubled"`
		Lost         *int `json:"lost"`
		Replayed     *int `json:"replayed"`
		Mails        *int `json:"mails"`
		MailsDoubled *int `json:"mails_doubled"`
		MailsUnknown *int `json:"mails_unknown"`
	}
	var got struct {
		Operations   *int     `json:"operations"`
		Deliveries   *int     `json:"deliveries"`
		Kills        *int     `json:"kills"`
		RequestsLost *int     `json:"requests_lost"`
		AnswersLost  *int     `json:"answers_lost"`
		Without      *without `json:"without"`
		With         *with    `json:"with"`
		Seconds      *float64 `json:"seconds"`
	}
	exactly(t, out.Bytes(), &got, []string{
		"operations", "deliveries", "kills", "requests_lost", "answers_lost", "without", "with", "seconds",
		"without.effects", "without.doubled", "without.lost", "without.mails", "without.mails_doubled",
		"with.effects", "with.doubled", "with.lost", "with.replayed", "with.mails", "with.mails_doubled", "with.mails_unknown",
	})
	for what, ok := range map[string]bool{
		"operations":                     *got.Operations == 60,
		"kills":                          *got.Kills == 2,
		"deliveries of both runs":        *got.Deliveries >= 2*60,
		"requests lost":                  *got.RequestsLost > 0,
		"answers lost":                   *got.AnswersLost > 0,
		"seconds":                        *got.Seconds > 0 && *got.Seconds <= took.Seconds(),
		"with: a charge for each":        *got.With.Effects == 60,
		"with: no charge doubled":        *got.With.Doubled == 0,
		"with: no charge lost":           *got.With.Lost == 0,
		"with: a mail for each":          *got.With.Mails == 60,
		"with: no mail doubled":          *got.With.MailsDoubled == 0,
		"with: answers replayed":         *got.With.Replayed > 0,
		"with: some mails were unknown":  *got.With.MailsUnknown > 0 && *got.With.MailsUnknown <= 60,
		"without: charges doubled":       *got.Without.Doubled > 0,
		"without: effects of doubling":   *got.Without.Effects >= 60+*got.Without.Doubled,
		"without: no charge lost":        *got.Without.Lost == 0,
		"without: mails doubled":         *got.Without.MailsDoubled > 0 && *got.Without.Mails > 60,
		"without: no more than arrived":  *got.Without.Effects <= *got.Deliveries,
		"progress: kills with work":      strings.Count(progress.String(), "SIGKILL with ") == 4 && !strings.Contains(progress.String(), "with 0 operations"),
		"progress: what was settled":     strings.Contains(progress.String(), "unknown mails settled from the gateway's ledger"),
		"it is over in a fair time":      took < time.Minute,
		"nothing but the object":         bytes.Count(out.Bytes(), []byte("\n")) == 1,
		"nothing is left of its folders": isEmpty(t, temp),
	} {
		if !ok {
			t.Errorf("not so: %s", what)
		}
	}
	if t.Failed() {
		t.Logf("%s%s", &progress, &out)
	}
}

// TestDemoViaProxy: the same promises, for a service that knows nothing of keys, with the proxy killed too.
func TestDemoViaProxy(t *testing.T) {
	t.Parallel()
	cmd, temp := program(t, "demo", "--via", "proxy", "--json", "--operations", "90", "--kills", "3", "--seed", "1")
	var out, progress bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &progress
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &progress)
	}
	type without struct {
		Effects      int `json:"effects"`
		Doubled      int `json:"doubled"`
		Lost         int `json:"lost"`
		Mails        int `json:"mails"`
		MailsDoubled int `json:"mails_doubled"`
	}
	type with struct {
		without
		Replayed     int  `json:"replayed"`
		MailsUnknown int  `json:"mails_unknown"`
		HalfDone     *int `json:"half_done"`
	}
	var got struct {
		Operations   int     `json:"operations"`
		Deliveries   int     `json:"deliveries"`
		Kills        int     `json:"kills"`
		Via          string  `json:"via"`
		RequestsLost int     `json:"requests_lost"`
		AnswersLost  int     `json:"answers_lost"`
		Without      without `json:"without"`
		With         with    `json:"with"`
		Seconds      float64 `json:"seconds"`
	}
	exactly(t, out.Bytes(), &got, []string{"via", "with.half_done", "with.mails_unknown"})
	for what, ok := range map[string]bool{
		"operations, kills and via":     got.Operations == 90 && got.Kills == 3 && got.Via == "proxy",
		"with: one charge for each":     got.With.Effects == 90 && got.With.Doubled == 0 && got.With.Lost == 0,
		"with: one mail for each":       got.With.Mails == 90 && got.With.MailsDoubled == 0,
		"with: answers replayed":        got.With.Replayed > 0,
		"with: some were unknown":       got.With.MailsUnknown > 0 && got.With.MailsUnknown <= 90,
		"with: half done among those":   *got.With.HalfDone >= 0 && *got.With.HalfDone <= got.With.MailsUnknown,
		"without: charges doubled":      got.Without.Doubled > 0 && got.Without.Lost == 0,
		"progress: each was killed":     strings.Count(progress.String(), "; the service started again") == 4 && strings.Count(progress.String(), "; the proxy started again") == 1,
		"progress: both were killed":    strings.Count(progress.String(), "; the service and the proxy started again") == 1,
		"progress: what was settled":    strings.Contains(progress.String(), "unknown payments settled from the service's ledger"),
		"nothing is left of its folder": isEmpty(t, temp),
	} {
		if !ok {
			t.Errorf("not so: %s", what)
		}
	}
	if t.Failed() {
		t.Logf("%s%s", &progress, &out)
	}
}

// exactly decodes one JSON object that has all of the named fields and no other.
func exactly(t *testing.T, raw []byte, into any, fields []string) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	if d.More() {
		t.Fatalf("more than one object: %s", raw)
	}
	var object map[string]any
	if err := json.Unmarshal(raw, &object); err != nil {
		t.Fatal(err)
	}
	for _, f := range fields {
		in, name := object, f
		if parent, child, ok := strings.Cut(f, "."); ok {
			in, _ = object[parent].(map[string]any)
			name = child
		}
		if in[name] == nil {
			t.Fatalf("no %s in %s", f, raw)
		}
	}
}

func isEmpty(t *testing.T, dir string) bool {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(entries) == 0
}

// TestDemoInterrupted: after Ctrl-C it ends with 130, and leaves no process and no file.
func TestDemoInterrupted(t *testing.T) {
	t.Parallel()
	cmd, temp := program(t, "demo", "--operations", "400")
	progress := newMilestone("final, ")
	cmd.Stdout, cmd.Stderr = progress, progress
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	progress.await(t)
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != exitInterrupted {
		t.Errorf("it ended with %v, want %d\n%s", err, exitInterrupted, progress)
	}
	if !isEmpty(t, temp) {
		t.Error("its folder is left")
	}
	if left := processesIn(t, temp); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
}

// TestDemoKilled: not even a killed demo leaves processes behind.
func TestDemoKilled(t *testing.T) {
	t.Parallel()
	t.Run("in mid-work", func(t *testing.T) {
		t.Parallel()
		demoKilled(t, "final, ", "--operations", "400")
	})
	t.Run("with the proxy up", func(t *testing.T) {
		t.Parallel()
		demoKilled(t, "\nwith everonce: ", "--operations", "60", "--via", "proxy")
	})
}

func demoKilled(t *testing.T, when string, args ...string) {
	t.Helper()
	cmd, temp := program(t, append([]string{"demo"}, args...)...)
	progress := newMilestone(when)
	cmd.Stdout, cmd.Stderr = progress, progress
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	progress.await(t)
	if before := processesIn(t, temp); len(before) == 0 {
		t.Error("no process of the demo's is to be found: this test would see none that is left")
	}
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("a killed process ended well")
	}
	for limit := time.Now().Add(30 * time.Second); ; {
		left := processesIn(t, temp)
		if len(left) == 0 {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("processes are left: %v", left)
		}
		time.Sleep(10 * time.Millisecond) // no event tells of a process that is nobody's child
	}
}

// processesIn returns the command lines of the processes that work with files in dir.
func processesIn(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	for _, line := range commandLines(t) {
		if strings.Contains(line, dir) {
			found = append(found, line)
		}
	}
	return found
}

// commandLines returns those of all processes: from /proc, which needs no program, or else from ps.
func commandLines(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, f := range files {
		if args, err := os.ReadFile(f); err == nil { // else it has ended in between
			lines = append(lines, strings.ReplaceAll(string(args), "\x00", " "))
		}
	}
	if len(lines) > 0 {
		return lines
	}
	out, err := exec.CommandContext(t.Context(), "ps", "-A", "-o", "command").Output()
	if err != nil {
		t.Fatalf("this test must see the processes of this machine, through /proc or ps: %v", err)
	}
	return strings.Split(string(out), "\n")
}
