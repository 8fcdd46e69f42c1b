package golden

import (
	"embed"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/everonce/everonce/driver"
)

//go:embed testdata
var testdata embed.FS

var makeNew = flag.Bool("formats.new", false, "write the missing files of testdata")

// section is one record of a file, under a line with its name.
type section struct{ name, text string }

type file []section

const (
	mark    = "-- "
	markEnd = " --\n"
)

// File returns a file of testdata that has no sections.
func File(t testing.TB, version int, name string) string {
	t.Helper()
	b, err := testdata.ReadFile(fmt.Sprintf("testdata/%d/%s", version, name))
	if *makeNew { // it may be newer than this program
		b, err = os.ReadFile(pathOf(t, version, name))
	}
	if err != nil {
		t.Fatalf("%v: every version of the format has its own files: see the package", err)
	}
	return string(b)
}

// sections reads a file. One that is still to be made is empty.
func sections(t testing.TB, version int, name string) (all file) {
	t.Helper()
	if *makeNew {
		if _, err := os.Stat(pathOf(t, version, name+".txt")); err != nil {
			return nil
		}
	}
	for part := range strings.SplitSeq("\n"+File(t, version, name+".txt"), "\n"+mark) {
		if part = strings.TrimPrefix(part, "\n"); part == "" {
			continue
		}
		title, text, ok := strings.Cut(part+"\n", markEnd)
		if !ok || !known(cases(t, version), title) {
			t.Fatalf("testdata/%d/%s.txt: there is no record %q", version, name, title)
		}
		all = append(all, section{title, strings.TrimRight(text, "\n") + "\n"})
	}
	return all
}

func (f file) text(name string) (string, bool) {
	for _, s := range f {
		if s.name == name {
			return s.text, true
		}
	}
	return "", false
}

func (f file) String() string {
	var b strings.Builder
	for _, s := range f {
		b.WriteString(mark + s.name + markEnd + s.text)
	}
	return b.String()
}

// compare fails where a file is another than what was written just now.
func (f file) compare(t *testing.T, version int, name string) {
	t.Helper()
	want := sections(t, version, name)
	if want == nil && *makeNew {
		if err := os.WriteFile(pathOf(t, version, name+".txt"), []byte(f.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Fatalf("testdata/%d/%s.txt is new: look through it", version, name)
	}
	for _, s := range f {
		if text, _ := want.text(s.name); text != s.text {
			t.Errorf("the record %q is stored in another form: a version %d that is out there does not read it. It is\n%s\nand was\n%s", s.name, version, s.text, text)
		}
	}
}

func pathOf(t testing.TB, version int, name string) string {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	dir := filepath.Join(filepath.Dir(here), "testdata", strconv.Itoa(version))
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

// records returns what the records of a version mean, by the names of their cases.
func records(t testing.TB, version int) map[string]driver.Record {
	t.Helper()
	all := make(map[string]driver.Record)
	for _, s := range sections(t, version, "records") {
		var rec driver.Record
		if err := json.Unmarshal([]byte(s.text), &rec); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		all[s.name] = rec
	}
	return all
}
