package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// event is one line of test2json, and of a build's output beside it.
type event struct {
	Action     string
	Package    string
	ImportPath string // of build-output
	Test       string
	Elapsed    float64
	Output     string
	// FailedBuild names the package whose build failed, where that is why a package failed.
	FailedBuild string
}

type testID struct{ pkg, test string }

// report is what has been read so far.
type report struct {
	out    io.Writer
	show   *regexp.Regexp
	output map[testID][]string
	built  map[string][]string // output of builds
	counts map[string]*counts  // by package
	total  counts
	skips  []string
	failed []failure
	broken int                // packages that failed without a failing test
	own    map[testID]float64 // seconds of each test, without its subtests
}

// failure is a test that failed, or a package, and what it wrote.
type failure struct{ name, text string }

type counts struct{ passed, failed, skipped int }

func newReport(out io.Writer) *report {
	return &report{out: out, output: map[testID][]string{}, built: map[string][]string{}, counts: map[string]*counts{}, own: map[testID]float64{}}
}

func (r *report) read(in io.Reader) error {
	lines := bufio.NewReaderSize(in, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			r.line(line)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// line takes one line. A line that is not JSON (a message of the go command) is passed on.
func (r *report) line(line []byte) {
	var ev event
	if line[0] != '{' || json.Unmarshal(line, &ev) != nil {
		fmt.Fprintf(r.out, "%s", line)
		return
	}
	id := testID{ev.Package, ev.Test}
	switch ev.Action {
	case "output":
		r.output[id] = append(r.output[id], ev.Output)
	case "build-output":
		r.built[ev.ImportPath] = append(r.built[ev.ImportPath], ev.Output)
	case "pass", "fail", "skip":
		if ev.Test == "" {
			r.packageEnds(ev)
		} else {
			r.testEnds(id, ev)
		}
	}
}

func (r *report) of(pkg string) *counts {
	c := r.counts[pkg]
	if c == nil {
		c = &counts{}
		r.counts[pkg] = c
	}
	return c
}

// testEnds counts a test or subtest, and prints the output of one that failed. A failed parent prints
// what it said itself: its subtests have printed theirs.
func (r *report) testEnds(id testID, ev event) {
	c, text := r.of(id.pkg), strings.Join(r.output[id], "")
	delete(r.output, id)
	r.own[id] += ev.Elapsed
	if i := strings.LastIndexByte(id.test, '/'); i > 0 {
		r.own[testID{id.pkg, id.test[:i]}] -= ev.Elapsed
	}
	switch ev.Action {
	case "pass":
		c.passed++
		if r.show != nil && r.show.MatchString(id.test) {
			fmt.Fprint(r.out, said(text))
		}
	case "fail":
		c.failed++
		r.failed = append(r.failed, failure{id.pkg + " " + id.test, text})
		fmt.Fprintf(r.out, "\n%s %s\n%s\n", id.pkg, id.test, text)
	case "skip":
		c.skipped++
		r.skips = append(r.skips, id.pkg+" "+id.test+": "+reason(text))
	}
}

func (r *report) packageEnds(ev event) {
	c := r.of(ev.Package)
	text := strings.Join(r.output[testID{ev.Package, ""}], "")
	verdict := map[string]string{"pass": "ok", "fail": "FAIL", "skip": "none"}[ev.Action]
	if ev.Action == "fail" && c.failed == 0 { // a panic, TestMain, a time-out, or the build
		r.broken++
		text = strings.Join(r.built[ev.FailedBuild], "") + text
		r.failed = append(r.failed, failure{ev.Package, text})
		fmt.Fprintf(r.out, "\n%s\n%s\n", ev.Package, text)
		r.unfinished(ev.Package)
	}
	r.total.passed += c.passed
	r.total.failed += c.failed
	r.total.skipped += c.skipped
	if ev.Action == "skip" || ev.Action == "pass" && c.passed+c.skipped == 0 {
		return // no tests in this package
	}
	fmt.Fprintf(r.out, "%-4s %-62s %5d tests %8.1f s\n", verdict, ev.Package, c.passed+c.failed+c.skipped, ev.Elapsed)
}

// unfinished prints the output of the tests that were running when their package died.
func (r *report) unfinished(pkg string) {
	for id, lines := range r.output {
		if id.pkg == pkg && id.test != "" {
			fmt.Fprintf(r.out, "did not end: %s\n%s\n", id.test, strings.Join(lines, ""))
		}
	}
}

func (r *report) finish() {
	if len(r.skips) > 0 {
		fmt.Fprintf(r.out, "\nnot run:\n")
		for _, s := range r.skips {
			fmt.Fprintf(r.out, "  %s\n", s)
		}
	}
	if len(r.failed) > 0 {
		fmt.Fprintf(r.out, "\nfailed:\n")
		for _, f := range r.failed {
			fmt.Fprintf(r.out, "  %s\n", f.name)
		}
	}
	fmt.Fprintln(r.out, r.totals())
}

// Limits of the repeated failures: the bytes of one, and their number.
const (
	digestHead, digestTail = 2000, 800
	digestMost             = 12
)

// digest is what is to be read at the end of many runs: each failure, and the beginning and end of what it wrote. A
// test that wrote nothing itself is left to its subtests.
func (r *report) digest() string {
	var b strings.Builder
	n := 0
	for _, f := range r.failed {
		text := strings.TrimSpace(said(f.text))
		if text == "" {
			continue
		}
		if n++; n > digestMost {
			continue
		}
		if len(text) > digestHead+digestTail {
			text = strings.ToValidUTF8(text[:digestHead], "") + "\n…\n" + strings.ToValidUTF8(text[len(text)-digestTail:], "")
		}
		fmt.Fprintf(&b, "\n%s\n%s\n", f.name, text)
	}
	if n > digestMost {
		fmt.Fprintf(&b, "\nand %d more\n", n-digestMost)
	}
	return b.String()
}

// times is a line for each test that takes a tenth of a second itself. Parallel subtests are not in their parent's
// time.
func (r *report) times() string {
	var b strings.Builder
	for id, seconds := range r.own {
		if seconds >= 0.1 {
			fmt.Fprintf(&b, "%8.1f s  %s %s\n", seconds, id.pkg, id.test)
		}
	}
	return b.String()
}

func (r *report) totals() string {
	s := fmt.Sprintf("%d passed, %d failed, %d not run", r.total.passed, r.total.failed, r.total.skipped)
	if r.broken > 0 {
		s += fmt.Sprintf(", %d packages broken", r.broken)
	}
	return s
}

func (r *report) verdict() error {
	switch {
	case r.total.failed > 0 || r.broken > 0:
		return errors.New("tests failed")
	case r.total.passed == 0:
		return errors.New("no test ran")
	}
	return nil
}

// said is a passed test's own words: its output without the frame of test2json.
func said(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if s := strings.TrimSpace(line); !strings.HasPrefix(s, "=== ") && !strings.HasPrefix(s, "--- ") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// reason is what a skipped test said, in one line.
func reason(text string) string {
	s := strings.Join(strings.Fields(said(text)), " ")
	if s == "" {
		return "it does not say why"
	}
	return s
}
