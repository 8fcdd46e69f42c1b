package docscheck

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/everonce/everonce/examples/internal/docs"
)

// source is a Go file that is compiled, tests included, line by line without indentation.
type source struct {
	file  string
	lines []string
}

// sources returns the Go files of all modules that are compiled here.
func sources(t *testing.T) []source {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=Dir,GoFiles,TestGoFiles,XTestGoFiles", "work")
	cmd.Dir = docs.Root(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []source
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			Dir                                string
			GoFiles, TestGoFiles, XTestGoFiles []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		for _, name := range slices.Concat(p.GoFiles, p.TestGoFiles, p.XTestGoFiles) {
			file := filepath.Join(p.Dir, name)
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, source{file, bare(string(text))})
		}
	}
	if len(all) < 50 {
		t.Fatalf("found %d Go files only: the test looks in the wrong place", len(all))
	}
	return all
}

// bare returns the lines of a text without indentation and without blank lines around them.
func bare(text string) []string {
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return lines
}

// holds reports whether the block's lines stand in the source, one after the other.
func (s *source) holds(block []string) bool {
	for at := 0; at+len(block) <= len(s.lines); at++ {
		if slices.Equal(s.lines[at:at+len(block)], block) {
			return true
		}
	}
	return false
}

func TestGoBlocks(t *testing.T) {
	all, seen := sources(t), 0
	for _, page := range docs.Pages(t) {
		for _, b := range docs.All(t, page) {
			if b.Info != "go" {
				continue
			}
			seen++
			block := bare(b.Text)
			if !slices.ContainsFunc(all, func(s source) bool { return s.holds(block) }) {
				t.Errorf("%s:%d: this code stands in no file that is compiled:\n%s", b.Page, b.Line, b.Text)
			}
		}
	}
	if seen < 5 {
		t.Errorf("found %d blocks of Go only: the test looks in the wrong place", seen)
	}
}

// TestOutputs: what a page shows as an output is what a test compares: as a whole, or line by line in one
// test file.
func TestOutputs(t *testing.T) {
	all, seen := sources(t), 0
	for _, page := range docs.Pages(t) {
		for _, b := range docs.All(t, page) {
			if b.Info != "text" {
				continue
			}
			seen++
			block := bare(b.Text)
			if !slices.ContainsFunc(all, func(s source) bool {
				if !strings.HasSuffix(s.file, "_test.go") {
					return false
				}
				whole := strings.Join(s.lines, "\n")
				return s.holds(block) || !slices.ContainsFunc(block, func(line string) bool { return !strings.Contains(whole, line) })
			}) {
				t.Errorf("%s:%d: no test compares this output:\n%s", b.Page, b.Line, b.Text)
			}
		}
	}
	if seen < 3 {
		t.Errorf("found %d outputs only: the test looks in the wrong place", seen)
	}
}

// testedDocuments are languages whose blocks a test takes from the page: it names both.
var testedDocuments = []string{"json", "yaml", "python", "ini"}

// TestDocuments: what a page shows as JSON, YAML, Python or INI is what a test compares or runs, which quotes the page.
func TestDocuments(t *testing.T) {
	all := sources(t)
	for _, page := range docs.Pages(t) {
		for _, b := range docs.All(t, page) {
			quote := `"` + path.Base(page) + `", "` + b.Info + `"`
			if slices.Contains(testedDocuments, b.Info) && !slices.ContainsFunc(all, func(s source) bool {
				return strings.HasSuffix(s.file, "_test.go") && strings.Contains(strings.Join(s.lines, "\n"), quote)
			}) {
				t.Errorf("%s:%d: no test quotes the page, with %s", b.Page, b.Line, quote)
			}
		}
	}
}

// TestEveryBlockSaysWhatItIs: a block without a language is a block that nothing checks.
func TestEveryBlockSaysWhatItIs(t *testing.T) {
	for _, page := range docs.Pages(t) {
		if strings.HasPrefix(page, "docs/design") || strings.HasPrefix(page, "docs/adr/") {
			continue
		}
		for _, b := range docs.All(t, page) {
			if !slices.Contains(append([]string{"go", "text", "sh", "sql", "console", "mermaid"}, testedDocuments...), b.Info) {
				t.Errorf("%s:%d: the block is %q; want go, text (an output that a test compares), json, yaml, python or ini (the same, by its place on the page), console (one that differs), sh, sql or mermaid (parsed by scripts/diagrams)", b.Page, b.Line, b.Info)
			}
		}
	}
}

// TestHolds plants faults: a changed line, a line left out, lines in another order.
func TestHolds(t *testing.T) {
	s := source{lines: bare("a\n\tb\n\t\tc\nd\n")}
	for _, tc := range []struct {
		block string
		want  bool
	}{
		{"b\nc\n", true},
		{"\ta\n\tb\n\tc\n\td\n", true},
		{"b\nd\n", false},
		{"c\nb\n", false},
		{"b\nC\n", false},
		{"d\ne\n", false},
	} {
		if got := s.holds(bare(tc.block)); got != tc.want {
			t.Errorf("%q: %v, want %v", tc.block, got, tc.want)
		}
	}
}
