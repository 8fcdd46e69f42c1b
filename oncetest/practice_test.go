package oncetest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	quotedName = regexp.MustCompile("`([^`]+)`")
	suiteName  = regexp.MustCompile(`^(Rule\d\d|[A-Z]\w+)/\w+$`)
	testName   = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	storeTests = regexp.MustCompile(`name: "([^"]+)"`)
	folder     = regexp.MustCompile(`examples/\w+`)
)

// TestPracticePage: the section that maps the practice list to tests names tests that exist, and all of
// this suite.
func TestPracticePage(t *testing.T) {
	_, page, _ := strings.Cut(read(t, "docs/reference/proofs.md"), "\n## The practice list\n")
	page, _, _ = strings.Cut(page, "\n## ")
	known := map[string]bool{}
	for _, file := range glob(t, "driver/drivertest/*.go") {
		for _, found := range storeTests.FindAllStringSubmatch(read(t, file), -1) {
			known[found[1]] = true
		}
	}
	err := filepath.WalkDir("..", func(path string, _ os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			rel, _ := filepath.Rel("..", path)
			for _, found := range testName.FindAllStringSubmatch(read(t, rel), -1) {
				known[found[1]] = true
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var named []string
	rows := 0
	for i, line := range strings.Split(page, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || strings.HasPrefix(cells[1], " ---") || strings.HasPrefix(cells[1], " what is asked") {
			continue
		}
		rows++
		if later := strings.HasPrefix(cells[2], " later, with"); !later && !quotedName.MatchString(cells[2]) && !quotedName.MatchString(cells[3]) {
			t.Errorf("line %d: no test of %q", i+1, strings.TrimSpace(cells[1]))
		}
		for _, found := range quotedName.FindAllStringSubmatch(cells[2], -1) {
			switch name := found[1]; {
			case strings.HasPrefix(name, "oncetest."), name == "Transactional", name == strings.ToLower(name):
			case !slices.ContainsFunc(tests, func(tc test) bool { return tc.name == name }):
				t.Errorf("line %d: Run has no test %s", i+1, name)
			default:
				named = append(named, name)
			}
		}
		for _, found := range quotedName.FindAllStringSubmatch(cells[3], -1) {
			if name := found[1]; (strings.HasPrefix(name, "Test") || suiteName.MatchString(name)) && !known[name] {
				t.Errorf("line %d: there is no test %s", i+1, name)
			}
		}
		for _, dir := range folder.FindAllString(cells[3], -1) {
			if len(glob(t, dir+"/*_test.go")) == 0 {
				t.Errorf("line %d: there are no tests in %s", i+1, dir)
			}
		}
	}
	for _, tc := range tests {
		if !slices.Contains(named, tc.name) {
			t.Errorf("the page does not name %s", tc.name)
		}
	}
	if rows < 40 {
		t.Errorf("the page has %d rows only", rows)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// glob returns the files of a pattern, relative to the repository.
func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", pattern))
	if err != nil {
		t.Fatal(err)
	}
	for i := range files {
		files[i], _ = filepath.Rel("..", files[i])
	}
	return files
}
