package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/everonce/everonce/internal/leftover"
)

// TestMain makes the test binary the program, and its children, by the name that it is called by.
func TestMain(m *testing.M) {
	if os.Args[0] == "demo" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		defer stop()
		os.Exit(Main(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	leftover.Main(m)
}

// program makes this test binary run as the program, with its temporary files in a folder of the test's.
func program(t *testing.T, args ...string) (cmd *exec.Cmd, temp string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	temp = t.TempDir()
	cmd = exec.CommandContext(t.Context(), self, args...)
	cmd.Args[0] = "demo"
	cmd.Env = append(os.Environ(), "TMPDIR="+temp, "GORACE=atexit_sleep_ms=0") // spares each process of a race-detecting build a second at its end
	return cmd, temp
}

// TestDemo runs the demo, small, and compares what it writes with what it promises: in both ways, its own middleware
// and the proxy, which is killed too.
func TestDemo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args    []string
		n       float64 // payments
		kills   float64
		members string // of the object
		told    map[string]int
	}{
		"middleware": {
			[]string{"--operations", "60", "--kills", "2"},
			60, 2,
			"answers_lost deliveries kills operations requests_lost seconds with.doubled with.effects with.lost with.mails with.mails_doubled with.mails_unknown with.replayed " +
				"without.doubled without.effects without.lost without.mails without.mails_doubled",
			map[string]int{"SIGKILL with ": 4, "; started again\n": 4, "with 0 operations": 0, "unknown mails settled from the gateway's ledger": 1},
		},
		"proxy": {
			[]string{"--via", "proxy", "--operations", "90", "--kills", "3"},
			90, 3,
			"answers_lost deliveries kills operations requests_lost seconds via with.doubled with.effects with.half_done with.lost with.mails with.mails_doubled with.mails_unknown with.replayed " +
				"without.doubled without.effects without.lost without.mails without.mails_doubled",
			map[string]int{
				"; the service started again\n": 4, "; the proxy started again\n": 1, "; the service and the proxy started again\n": 1,
				"unknown payments settled from the service's ledger": 1,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd, temp := program(t, append(c.args, "--json", "--seed", "1")...)
			var out, progress bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &progress
			started := time.Now()
			if err := cmd.Run(); err != nil {
				t.Fatalf("%v\n%s", err, &progress)
			}
			took := time.Since(started)
			got := numbers(t, out.Bytes())
			if members := strings.Join(slices.Sorted(maps.Keys(got)), " "); members != c.members {
				t.Errorf("the object has\n%s\nwant\n%s", members, c.members)
			}
			n := c.n
			for what, ok := range map[string]bool{
				"operations and kills":           got["operations"] == c.n && got["kills"] == c.kills,
				"deliveries of both runs":        got["deliveries"] >= 2*n && got["requests_lost"] > 0 && got["answers_lost"] > 0,
				"seconds":                        got["seconds"] > 0 && got["seconds"] <= took.Seconds() && took < time.Minute,
				"with: one charge for each":      got["with.effects"] == n && got["with.doubled"] == 0 && got["with.lost"] == 0,
				"with: one mail for each":        got["with.mails"] == n && got["with.mails_doubled"] == 0,
				"with: answers replayed":         got["with.replayed"] > 0,
				"with: some were unknown":        got["with.mails_unknown"] > 0 && got["with.mails_unknown"] <= n,
				"with: half done among those":    got["with.half_done"] >= 0 && got["with.half_done"] <= got["with.mails_unknown"],
				"without: charges doubled":       got["without.doubled"] > 0 && got["without.effects"] >= n+got["without.doubled"] && got["without.effects"] <= got["deliveries"],
				"without: no charge lost":        got["without.lost"] == 0,
				"without: mails doubled":         got["without.mails_doubled"] > 0 && got["without.mails"] > n,
				"nothing is left of its folders": isEmpty(t, temp),
			} {
				if !ok {
					t.Errorf("not so: %s", what)
				}
			}
			for text, times := range c.told {
				if got := strings.Count(progress.String(), text); got != times {
					t.Errorf("it says %q %d times, want %d", text, got, times)
				}
			}
			if t.Failed() {
				t.Logf("%s%s", &progress, &out)
			}
		})
	}
}

// numbers returns the members of a JSON object, including members of nested objects; a text has the value 0.
func numbers(t *testing.T, raw []byte) map[string]float64 {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal(raw, &object); err != nil || bytes.Count(raw, []byte("\n")) != 1 {
		t.Fatalf("%v, %s", err, raw)
	}
	all := make(map[string]float64)
	for name, value := range object {
		if inner, ok := value.(map[string]any); ok {
			for member, value := range inner {
				all[name+"."+member], _ = value.(float64)
			}
			continue
		}
		all[name], _ = value.(float64)
	}
	return all
}

// TestUsage: wrong flags are refused before anything is started.
func TestUsage(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--operations 0":           "--operations is 0, must be from 1 to 100000",
		"--kills -1":               "must not be negative",
		"--operations 9 --kills 5": "--kills is 5, must be at most half of --operations (9)",
		"--via post":               `--via is "post", must be proxy`,
		"--bogus":                  "not defined: -bogus",
		"extra":                    "no other arguments",
	} {
		var out, errOut strings.Builder
		if got := Main(t.Context(), strings.Fields(args), strings.NewReader(""), &out, &errOut); got != exitUsage || !strings.Contains(errOut.String(), want) || out.Len() > 0 {
			t.Errorf("%s: %d, %q", args, got, errOut.String())
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
	cmd, temp := program(t, "--operations", "400")
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
	cmd, temp := program(t, args...)
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
		time.Sleep(10 * time.Millisecond) // no event reports a process that is not a child
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

// commandLines returns the command lines of all processes: from /proc, which needs no program, or else from ps.
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
