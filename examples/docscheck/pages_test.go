package docscheck

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/everonce/everonce/examples/internal/docs"
)

// texts are the pages, and those beside the README that hold prose.
func texts(t *testing.T) []string {
	t.Helper()
	return append(docs.Pages(t), "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
}

var link = regexp.MustCompile(`\]\(([^()\s]+)\)`)

// TestLinks: a link to a file leads to one, and one to a section to a heading.
func TestLinks(t *testing.T) {
	seen := 0
	for _, page := range texts(t) {
		fenced := false
		for i, line := range strings.Split(docs.Read(t, page), "\n") {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				fenced = !fenced
			}
			if fenced {
				continue
			}
			for _, found := range link.FindAllStringSubmatch(line, -1) {
				target := found[1]
				if strings.Contains(target, "://") {
					continue
				}
				seen++
				file, section, _ := strings.Cut(target, "#")
				to := page
				if file != "" {
					to = path.Join(path.Dir(page), file)
				}
				if _, err := os.Stat(filepath.Join(docs.Root(t), filepath.FromSlash(to))); err != nil {
					t.Errorf("%s:%d: the link %s leads nowhere", page, i+1, target)
					continue
				}
				if section != "" && !anchors(docs.Read(t, to))[section] {
					t.Errorf("%s:%d: %s has no section %q", page, i+1, to, section)
				}
			}
		}
	}
	if seen < 20 {
		t.Errorf("found %d links only: the test looks in the wrong place", seen)
	}
}

// anchors returns the names of a page's sections, as GitHub makes them.
func anchors(text string) map[string]bool {
	names := map[string]bool{}
	for _, line := range strings.Split(text, "\n") {
		title := strings.TrimLeft(line, "#")
		if title == line || !strings.HasPrefix(title, " ") {
			continue
		}
		var b strings.Builder
		for _, r := range strings.ToLower(strings.TrimSpace(title)) {
			switch {
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				b.WriteRune(r)
			case r == ' ':
				b.WriteByte('-')
			}
		}
		names[b.String()] = true
	}
	return names
}

var (
	namedTest  = regexp.MustCompile(`\b(?:Test|Example|Benchmark|Fuzz)[A-Z]\w*`)
	namedCheck = regexp.MustCompile("`([A-Z]\\w*)/([A-Z]\\w*)`")
	testFunc   = regexp.MustCompile(`(?m)^func ((?:Test|Example|Benchmark|Fuzz)[A-Z]\w*)\(`)
	checkName  = regexp.MustCompile(`name: "([A-Z]\w*)/([A-Z]\w*)"`)
)

// TestNamedTests: a test that a page names exists, and so does a check of driver/drivertest, "Rule13/ResultsGo", by its
// group.
func TestNamedTests(t *testing.T) {
	exists, groups := map[string]bool{}, map[string]bool{}
	for _, s := range sources(t) {
		text := strings.Join(s.lines, "\n")
		if strings.HasSuffix(s.file, "_test.go") {
			for _, found := range testFunc.FindAllStringSubmatch(text, -1) {
				exists[found[1]] = true
			}
		}
		for _, found := range checkName.FindAllStringSubmatch(text, -1) {
			exists[found[1]+"/"+found[2]], groups[found[1]] = true, true
		}
	}
	seen, checks := 0, 0
	for _, page := range texts(t) {
		for i, line := range strings.Split(docs.Read(t, page), "\n") {
			named := namedTest.FindAllString(line, -1)
			for _, found := range namedCheck.FindAllStringSubmatch(line, -1) {
				if groups[found[1]] {
					named = append(named, found[1]+"/"+found[2])
					checks++
				}
			}
			for _, name := range named {
				seen++
				if !exists[name] {
					t.Errorf("%s:%d: there is no test %s", page, i+1, name)
				}
			}
		}
	}
	if seen < 10 || checks < 10 {
		t.Errorf("the pages name %d tests and %d checks only: the test looks in the wrong place", seen, checks)
	}
}

var mode = regexp.MustCompile(`(?i)transactional|guarded|natural|reexecute|without naming the mode`)

// TestExactlyOnceNamesTheMode: a text that says "exactly once" without naming the mode is wrong.
func TestExactlyOnceNamesTheMode(t *testing.T) {
	for _, page := range texts(t) {
		for i, paragraph := range paragraphs(docs.Read(t, page)) {
			if strings.Contains(strings.ToLower(paragraph), "exactly once") && !mode.MatchString(paragraph) {
				t.Errorf("%s, paragraph %d: says \"exactly once\" and names no mode:\n%s", page, i+1, paragraph)
			}
		}
	}
}

// TestCommentsNameTheMode: so is a comment.
func TestCommentsNameTheMode(t *testing.T) {
	for _, s := range sources(t) {
		comment := ""
		for i, line := range append(s.lines, "") {
			if text, ok := strings.CutPrefix(line, "//"); ok {
				comment += text
				continue
			}
			said := strings.ReplaceAll(strings.ToLower(comment), "-", " ")
			if strings.Contains(said, "exactly once") && !mode.MatchString(comment) {
				t.Errorf("%s:%d: says \"exactly once\" above and names no mode:%s", s.file, i+1, comment)
			}
			comment = ""
		}
	}
}

// paragraphs splits a page at blank lines, and tables at their rows.
func paragraphs(text string) []string {
	var all []string
	for _, p := range strings.Split(text, "\n\n") {
		if strings.HasPrefix(strings.TrimSpace(p), "|") {
			all = append(all, strings.Split(p, "\n")...)
			continue
		}
		all = append(all, p)
	}
	return all
}

var goFile = regexp.MustCompile("`((?:driver/)?\\w+\\.go)`")

// TestMapOfTheCore: the design names every file of the root package and of package driver, and no other.
func TestMapOfTheCore(t *testing.T) {
	_, core, _ := strings.Cut(docs.Read(t, "docs/design.md"), "\n## 5. ")
	core, _, _ = strings.Cut(core, "\n## ")
	var named, there []string
	for _, found := range goFile.FindAllStringSubmatch(core, -1) {
		named = append(named, found[1])
	}
	for _, folder := range []string{"", "driver"} {
		files, err := filepath.Glob(filepath.Join(docs.Root(t), folder, "*.go"))
		if err != nil || len(files) < 10 {
			t.Fatalf("%d files in %q (%v): the test looks in the wrong place", len(files), folder, err)
		}
		for _, file := range files {
			if name := filepath.Base(file); !strings.HasSuffix(name, "_test.go") {
				there = append(there, path.Join(folder, name))
			}
		}
	}
	sameSet(t, "design.md, the core's files", named, there)
}
