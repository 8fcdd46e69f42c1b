package deptest

import (
	"cmp"
	"encoding/json"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// goMod is what `go mod edit -json` says of a go.mod.
type goMod struct {
	Module  struct{ Path string }
	Go      string
	Require []struct {
		Path, Version string
		Indirect      bool
	}
	Replace []struct{ Old, New struct{ Path string } }
	Exclude []json.RawMessage
}

// goModFiles returns the folders with a go.mod, "." for the root.
func goModFiles(t *testing.T) []string {
	t.Helper()
	var dirs []string
	eachFile(t, func(file string, _ func() []byte) {
		if path.Base(file) == "go.mod" {
			dirs = append(dirs, path.Dir(file))
		}
	})
	slices.Sort(dirs)
	if len(dirs) < 2 {
		t.Fatalf("found the modules %q only: the test looks in the wrong place", dirs)
	}
	return dirs
}

func readGoMod(t *testing.T, dir string) goMod {
	t.Helper()
	var m goMod
	if err := json.Unmarshal(goTool(t, dir, "mod", "edit", "-json"), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func modulePaths(t *testing.T) []string {
	t.Helper()
	var paths []string
	for _, dir := range goModFiles(t) {
		paths = append(paths, readGoMod(t, dir).Module.Path)
	}
	return paths
}

func TestModules(t *testing.T) {
	var work struct {
		Use     []struct{ DiskPath string }
		Replace []struct {
			Old struct{ Path, Version string }
			New struct{ Path string }
		}
	}
	if err := json.Unmarshal(goTool(t, ".", "work", "edit", "-json"), &work); err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, u := range work.Use {
		used[path.Clean(u.DiskPath)] = true
	}
	replaced := map[string]string{}
	for _, r := range work.Replace {
		replaced[r.Old.Path+"@"+r.Old.Version] = path.Clean(r.New.Path)
	}
	goVersion := readGoMod(t, ".").Go
	for _, dir := range goModFiles(t) {
		m := readGoMod(t, dir)
		if want := path.Join(rootModule, dir); m.Module.Path != want {
			t.Errorf("%s/go.mod: the module is %s, want %s", dir, m.Module.Path, want)
		}
		if !used[dir] {
			t.Errorf("%s is not in go.work", dir)
		}
		if m.Go != goVersion {
			t.Errorf("%s/go.mod: go %s, the root has %s", dir, m.Go, goVersion)
		}
		if len(m.Replace) > 0 || len(m.Exclude) > 0 {
			t.Errorf("%s/go.mod has a replace or an exclude: `go install …@version` refuses a module that has one", dir)
		}
		for _, r := range m.Require {
			sub, isOurs := local(r.Path)
			if !isOurs {
				continue
			}
			if sub == "" {
				sub = "."
			}
			if replaced[r.Path+"@"+r.Version] != sub {
				t.Errorf("%s/go.mod requires %s %s, which go.work does not resolve to ./%s", dir, r.Path, r.Version, sub)
			}
		}
	}
}

// TestInstallPage: the page that says how to pin a commit has a replace line for each module that a program can import.
func TestInstallPage(t *testing.T) {
	page, err := os.ReadFile(path.Join("..", "..", "docs", "how-to", "install.md"))
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, dir := range goModFiles(t) {
		if dir != "cmd/everonce" && dir != "demo" && dir != "examples" && !strings.HasPrefix(dir, "internal/") {
			want = append(want, dir)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^\s+github\.com/everonce/everonce(\S*) => \.\./everonce(\S*)$`).FindAllStringSubmatch(string(page), -1) {
		if m[1] != m[2] {
			t.Errorf("the page replaces %s by %s", m[1], m[2])
		}
		got = append(got, cmp.Or(strings.TrimPrefix(m[1], "/"), "."))
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the page replaces %q, the modules are %q", got, want)
	}
}

// TestRootRequiresLeavesOnly: each requirement of the root module is linked by a package of it, and has no
// requirements. Libraries that only tests need are required by separate modules.
func TestRootRequiresLeavesOnly(t *testing.T) {
	for _, r := range readGoMod(t, ".").Require {
		if _, isOurs := local(r.Path); isOurs {
			t.Errorf("the root module requires %s", r.Path)
			continue
		}
		if !slices.ContainsFunc(slices.Collect(maps.Values(mayLink)), func(leaves []string) bool { return slices.Contains(leaves, r.Path) }) {
			t.Errorf("the root module requires %s, which no package of it may link", r.Path)
		}
		var info struct{ GoMod string }
		if err := json.Unmarshal(goTool(t, ".", "mod", "download", "-json", r.Path+"@"+r.Version), &info); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(info.GoMod)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(strings.TrimSpace(line), "require") {
				t.Errorf("%s %s is no leaf; its go.mod has: %s", r.Path, r.Version, line)
			}
		}
	}
}
