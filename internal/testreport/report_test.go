package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		want     []string // in the output
		not      []string
		err      string
	}{
		{
			name: "passed", err: "",
			in: `{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    a.go:1: twelve kills\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b.go:1: quiet\n"}
{"Action":"pass","Package":"p","Test":"TestB"}
{"Action":"pass","Package":"p","Elapsed":1.5}
`,
			want: []string{"ok   p", "2 tests", "twelve kills", "2 passed, 0 failed, 0 not run"},
			not:  []string{"quiet", "=== RUN"},
		},
		{
			name: "failed", err: "tests failed",
			in: `{"Action":"output","Package":"p","Test":"TestA/x","Output":"    a.go:1: got 2, want 1\n"}
{"Action":"fail","Package":"p","Test":"TestA/x"}
{"Action":"fail","Package":"p"}
`,
			want: []string{"FAIL p", "got 2, want 1", "failed:\n  p TestA/x", "0 passed, 1 failed, 0 not run"},
		},
		{
			name: "did not build", err: "tests failed",
			in: `{"ImportPath":"p [p.test]","Action":"build-output","Output":"p.go:3: undefined: x\n"}
{"ImportPath":"p [p.test]","Action":"build-fail"}
{"Action":"fail","Package":"p","FailedBuild":"p [p.test]"}
`,
			want: []string{"undefined: x", "1 packages broken"},
		},
		{
			name: "died", err: "tests failed",
			in: `{"Action":"output","Package":"p","Test":"TestA","Output":"    a.go:1: last words\n"}
{"Action":"output","Package":"p","Output":"panic: test timed out\n"}
{"Action":"fail","Package":"p"}
`,
			want: []string{"test timed out", "did not end: TestA", "last words", "1 packages broken"},
		},
		{
			name: "not run", err: "no test ran",
			in: `{"Action":"output","Package":"p","Test":"TestA","Output":"    a.go:1: needs\n    root\n"}
{"Action":"skip","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p"}
`,
			want: []string{"not run:\n  p TestA: a.go:1: needs root", "1 not run"},
		},
		{name: "nothing", in: "go: no packages\n", want: []string{"go: no packages"}, err: "no test ran"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out bytes.Buffer
			totals := filepath.Join(t.TempDir(), "totals")
			err := run(strings.NewReader(tc.in), &out, "TestA", totals, "", "")
			if got := errText(err); got != tc.err {
				t.Errorf("error %q, want %q", got, tc.err)
			}
			for _, w := range tc.want {
				if !strings.Contains(out.String(), w) {
					t.Errorf("%q is not in the output:\n%s", w, &out)
				}
			}
			for _, w := range tc.not {
				if strings.Contains(out.String(), w) {
					t.Errorf("%q is in the output:\n%s", w, &out)
				}
			}
			if b, err := os.ReadFile(totals); err != nil || !strings.Contains(out.String(), string(b)) {
				t.Errorf("totals %q, %v", b, err)
			}
		})
	}
}

// Failures are repeated at the end of all runs: in short, and without tests that wrote nothing.
func TestDigest(t *testing.T) {
	file := filepath.Join(t.TempDir(), "failures")
	long := strings.Repeat("x", digestHead) + "the middle" + strings.Repeat("y", digestTail)
	for _, in := range []string{
		`{"Action":"output","Package":"p","Test":"TestA/x","Output":"    a.go:1: got 2, want 1\n"}
{"Action":"fail","Package":"p","Test":"TestA/x"}
{"Action":"output","Package":"p","Test":"TestA","Output":"--- FAIL: TestA\n"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestLong","Output":"` + long + `\n"}
{"Action":"fail","Package":"p","Test":"TestLong"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b.go:1: quiet\n"}
{"Action":"pass","Package":"p","Test":"TestB"}
{"Action":"fail","Package":"p"}
`,
		`{"ImportPath":"q [q.test]","Action":"build-output","Output":"q.go:3: undefined: x\n"}
{"Action":"fail","Package":"q","FailedBuild":"q [q.test]"}
`,
		strings.Repeat(`{"Action":"output","Package":"m","Test":"TestM","Output":"    m.go:1: one of many\n"}
{"Action":"fail","Package":"m","Test":"TestM"}
`, digestMost+2),
	} {
		if err := run(strings.NewReader(in), io.Discard, "", "", file, ""); err == nil {
			t.Error("no error")
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\np TestA/x\na.go:1: got 2, want 1\n", "\np TestLong\nxxx", "\n…\n", "\nq\nq.go:3: undefined: x\n", "\nand 2 more\n"} {
		if !strings.Contains(string(got), want) {
			t.Errorf("%q is not in it:\n%s", want, got)
		}
	}
	for _, not := range []string{"TestA\n", "the middle", "quiet"} {
		if strings.Contains(string(got), not) {
			t.Errorf("%q is in it", not)
		}
	}
	if n := strings.Count(string(got), "one of many"); n != digestMost {
		t.Errorf("%d of many, want %d", n, digestMost)
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestTimes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "times")
	in := `{"Action":"pass","Package":"p","Test":"TestA/x","Elapsed":1.5}
{"Action":"pass","Package":"p","Test":"TestA/y","Elapsed":0.01}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":3.51}
{"Action":"pass","Package":"p","Test":"TestParallel/x","Elapsed":1}
{"Action":"pass","Package":"p","Test":"TestParallel","Elapsed":0}
{"Action":"pass","Package":"p","Elapsed":4}
`
	if err := run(strings.NewReader(in), io.Discard, "", "", "", file); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	slices.Sort(lines)
	want := []string{"     1.0 s  p TestParallel/x", "     1.5 s  p TestA/x", "     2.0 s  p TestA"}
	if !slices.Equal(lines, want) {
		t.Errorf("got %q, want %q", lines, want)
	}
}
