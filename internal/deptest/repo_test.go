package deptest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const rootModule = "github.com/everonce/everonce"

// top is the repository's folder, from this package's.
var top = filepath.Join("..", "..")

// goTool runs the go command in a folder of the repository and returns its output.
func goTool(t *testing.T, dir string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = filepath.Join(top, dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s in %q: %v\n%s", strings.Join(args, " "), dir, err, &stderr)
	}
	return out
}

// goPackage is what `go list` says of a package.
type goPackage struct {
	ImportPath   string
	Standard     bool
	Imports      []string
	TestImports  []string
	XTestImports []string
}

var workspace map[string]goPackage

// ours returns all packages of the workspace, by import path. The tests that ask run one after the other.
func ours(t *testing.T) map[string]goPackage {
	t.Helper()
	if workspace == nil {
		workspace = listed(t, "work")
	}
	return workspace
}

func listed(t *testing.T, args ...string) map[string]goPackage {
	t.Helper()
	out := goTool(t, ".", append([]string{"list", "-json=ImportPath,Standard,Imports,TestImports,XTestImports"}, args...)...)
	pkgs := map[string]goPackage{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		switch err := dec.Decode(&p); {
		case errors.Is(err, io.EOF):
			return pkgs
		case err != nil:
			t.Fatal(err)
		}
		pkgs[p.ImportPath] = p
	}
}

// local returns the folder of one of our packages: "" for the root.
func local(importPath string) (dir string, isOurs bool) {
	if importPath == rootModule {
		return "", true
	}
	return strings.CutPrefix(importPath, rootModule+"/")
}

// within reports whether a folder is outer or lies in it.
func within(dir, outer string) bool {
	return dir == outer || strings.HasPrefix(dir, outer+"/")
}

// eachFile calls fn with every file of the repository, except for the files of git, of tools and of other hidden
// folders.
func eachFile(t *testing.T, fn func(path string, read func() []byte)) {
	t.Helper()
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if path != top && name != ".ci" && (strings.HasPrefix(name, ".") || path == filepath.Join(top, "bin")) {
				return filepath.SkipDir
			}
			return nil
		}
		rel, err := filepath.Rel(top, path)
		if err != nil {
			return err
		}
		fn(filepath.ToSlash(rel), func() []byte {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			return b
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
