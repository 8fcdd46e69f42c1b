package deps

import (
	"bytes"
	"path"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

const maxLines = 500

var (
	// A file or folder is named after the one concept in it.
	emptyNames = regexp.MustCompile(`(^|/)(utils?|commons?|helpers?|types|misc|shared|stuff)(_[a-z]+)?(/|\.go$)`)
	// A folder that only one machine has.
	machinePaths = regexp.MustCompile(`(^|[^a-zA-Z0-9_.])/(work|farm|root|home|Users)/[a-z]`)
)

func TestFiles(t *testing.T) {
	seen := 0
	eachFile(t, func(file string, read func() []byte) {
		if emptyNames.MatchString(file) {
			t.Errorf("%s: the name says nothing about what is inside", file)
		}
		ext := path.Ext(file)
		switch ext {
		case ".go", ".md", ".sh", ".yml", ".yaml", ".sql", ".mod", ".work", ".txt", ".txtar", "":
		default:
			return
		}
		text := read()
		if !utf8.Valid(text) || bytes.IndexByte(text, 0) >= 0 {
			return // a corpus of bytes, a binary
		}
		seen++
		if n := bytes.Count(text, []byte("\n")); ext == ".go" && n > maxLines {
			t.Errorf("%s has %d lines, the limit is %d: one concept per file", file, n, maxLines)
		}
		for i, line := range strings.Split(string(text), "\n") {
			if machinePaths.MatchString(line) {
				t.Errorf("%s:%d: a path of one machine: %s", file, i+1, strings.TrimSpace(line))
			}
		}
	})
	if seen < 20 {
		t.Fatalf("looked at %d files only: the test looks in the wrong place", seen)
	}
}

// TestPatterns plants faults: the patterns must find them, and nothing else.
func TestPatterns(t *testing.T) {
	for text, want := range map[string]bool{
		"util.go": true, "store/utils/x.go": true, "helpers_test.go": true, "types.go": true, "common/a.go": true,
		"utility.go": false, "store/typestate.go": false, "helper.go": true, "commonly.go": false,
	} {
		if got := emptyNames.MatchString(text); got != want {
			t.Errorf("%q: matched is %v, want %v", text, got, want)
		}
	}
	for text, want := range map[string]bool{
		"cd /" + "root/x": true, `"/` + `home/me"`: true, "./work/x": false, "github.com/work/x": false, "/" + "workspace/x": false,
	} {
		if got := machinePaths.MatchString(text); got != want {
			t.Errorf("%q: matched is %v, want %v", text, got, want)
		}
	}
}
