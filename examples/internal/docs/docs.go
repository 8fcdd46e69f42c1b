// Package docs reads the project's pages, for the tests that hold them to the code.
package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// Block is a fenced block of a page.
type Block struct {
	Page string // relative to the project's root
	Line int    // of its first line
	Info string // what stands behind the fence: "go", "sh", "text", …
	Text string
}

// Root returns the project's root.
func Root(t *testing.T) string {
	t.Helper()
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		t.Fatal("this package does not know where it lies")
	}
	return filepath.Join(filepath.Dir(file), "..", "..", "..")
}

// Pages returns the README and all pages in docs, relative to the project's root.
func Pages(t *testing.T) []string {
	t.Helper()
	root := Root(t)
	pages := []string{"README.md"}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		rel, err := filepath.Rel(root, path)
		pages = append(pages, filepath.ToSlash(rel))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

// Read returns a page.
func Read(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(Root(t), filepath.FromSlash(page)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// All returns the fenced blocks of a page.
func All(t *testing.T, page string) []Block {
	t.Helper()
	var blocks []Block
	var open *Block
	for i, line := range strings.Split(Read(t, page), "\n") {
		fence, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case isFence && open == nil:
			open = &Block{Page: page, Line: i + 2, Info: fence}
		case isFence:
			blocks = append(blocks, *open)
			open = nil
		case open != nil:
			open.Text += line + "\n"
		}
	}
	if open != nil {
		t.Errorf("%s:%d: the block is not closed", page, open.Line)
	}
	return blocks
}

// Blocks returns the texts of the blocks of a page in docs with that info and a text in them.
func Blocks(t *testing.T, page, info, with string) []string {
	t.Helper()
	var texts []string
	for _, b := range All(t, "docs/"+page) {
		if b.Info == info && strings.Contains(b.Text, with) {
			texts = append(texts, b.Text)
		}
	}
	return texts
}

// Row is a row of a table.
type Row struct {
	Line  int
	Cells []string
}

// Table returns the rows of the first table under a heading of a page, without its head.
func Table(t *testing.T, page, heading string) []Row {
	t.Helper()
	lines := strings.Split(Read(t, page), "\n")
	at := slices.IndexFunc(lines, func(l string) bool {
		title := strings.TrimLeft(l, "#")
		return title != l && strings.TrimSpace(title) == heading
	})
	if at < 0 {
		t.Fatalf("%s has no heading %q", page, heading)
	}
	var rows []Row
	for i := at + 1; i < len(lines); i++ {
		line := strings.TrimSpace(lines[i])
		if !strings.HasPrefix(line, "|") {
			if len(rows) > 0 || strings.HasPrefix(line, "#") {
				break
			}
			continue
		}
		cells := strings.Split(strings.ReplaceAll(strings.Trim(line, "|"), `\|`, "\x00"), "|")
		for j := range cells {
			cells[j] = strings.TrimSpace(strings.ReplaceAll(cells[j], "\x00", "|"))
		}
		rows = append(rows, Row{i + 1, cells})
	}
	if len(rows) < 3 {
		t.Fatalf("%s has no table under %q", page, heading)
	}
	return rows[2:]
}
