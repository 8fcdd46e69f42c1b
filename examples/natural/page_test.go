package natural

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/everonce/everonce/examples/internal/docs"
)

// unindented returns a text's lines without indentation.
func unindented(text string) string {
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return "\n" + strings.Join(lines, "\n") + "\n"
}

// TestPageShowsThisCode: every block of the page stands in this package, and every file of it in the page.
func TestPageShowsThisCode(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	code, shown := map[string]string{}, map[string]int{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || file == "doc.go" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		code[file] = unindented(string(text))
	}
	for _, b := range docs.All(t, "docs/how-to/natural-idempotency.md") {
		if b.Info != "go" {
			t.Errorf("%s:%d: the block is %q", b.Page, b.Line, b.Info)
		}
		in := ""
		for file, text := range code {
			if strings.Contains(text, unindented(b.Text)) {
				in = file
			}
		}
		if in == "" {
			t.Errorf("%s:%d: this code is not compiled:\n%s", b.Page, b.Line, b.Text)
		}
		shown[in]++
	}
	for file := range code {
		if shown[file] == 0 {
			t.Errorf("%s is not shown in the page", file)
		}
	}
}
