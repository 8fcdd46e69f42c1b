package deptest

import (
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// isExample says what shows the way to users.
var isExample = regexp.MustCompile(`^examples/.*\.go$|(^|/)example[a-z_]*_test\.go$`)

// ofStores are the examples for authors of stores and of tools that read one. All others are for applications.
var ofStores = []string{"driver", "examples/filestore", "examples/docscheck", "httponce/example_answer_binary_test.go"}

// beyondApplications reports whether an example has an import that an application does not need or cannot have. Tests
// of examples may use the packages for tests in internal.
func beyondApplications(file, importPath string) bool {
	to, isOurs := local(importPath)
	if !isOurs || !isExample.MatchString(file) || slices.ContainsFunc(ofStores, func(dir string) bool { return within(file, dir) }) {
		return false
	}
	return within(to, "driver") || within(to, "internal") && !strings.HasSuffix(file, "_test.go") && !within(file, "examples/internal")
}

// TestExamplesOfApplications: an application gets by with the root, the stores and the adapters.
func TestExamplesOfApplications(t *testing.T) {
	seen := 0
	eachFile(t, func(file string, read func() []byte) {
		if !isExample.MatchString(file) {
			return
		}
		seen++
		f, err := parser.ParseFile(token.NewFileSet(), file, read(), parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range f.Imports {
			imp, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if beyondApplications(file, imp) {
				t.Errorf("%s imports %s: an application does without", file, imp)
			}
		}
	})
	if seen < 50 {
		t.Fatalf("looked at %d examples only: the test looks in the wrong place", seen)
	}
}

// TestStoresImportTheContract: what a store has to do stands in package driver.
func TestStoresImportTheContract(t *testing.T) {
	seen := 0
	for importPath, p := range ours(t) {
		dir, _ := local(importPath)
		if path.Dir(dir) != "store" && dir != "examples/filestore" {
			continue
		}
		seen++
		if !slices.Contains(p.Imports, rootModule+"/driver") {
			t.Errorf("%s does not import driver", dir)
		}
	}
	if seen < 6 {
		t.Fatalf("looked at %d stores only: the test looks in the wrong place", seen)
	}
}

// TestBeyondApplications plants faults: the rule must tell them.
func TestBeyondApplications(t *testing.T) {
	for _, tc := range []struct {
		file, imports string
		want          bool
	}{
		{"examples/payment/main.go", "", false},
		{"examples/payment/main.go", "/store/sqlitestore", false},
		{"examples/payment/main.go", "/driver", true},
		{"examples/payment/main_test.go", "/driver", true},
		{"examples/payment/main.go", "/driver/transition", true},
		{"examples/payment/main.go", "/internal/sqlstore", true},
		{"examples/payment/main_test.go", "/internal/testserver", false},
		{"examples/internal/docs/docs.go", "/internal/testserver", false},
		{"examples/internal/docs/docs.go", "/driver", true},
		{"examples/filestore/filestore.go", "/driver", false},
		{"examples/filestore2/main.go", "/driver", true},
		{"example_do_test.go", "/driver", true},
		{"store/pgxstore/example_test.go", "/driver", true},
		{"driver/example_test.go", "/driver", false},
		{"store/pgxstore/store_test.go", "/driver", false},
	} {
		if got := beyondApplications(tc.file, rootModule+tc.imports); got != tc.want {
			t.Errorf("%s imports %s: wrong is %v, want %v", tc.file, tc.imports, got, tc.want)
		}
	}
	if beyondApplications("examples/payment/main.go", "database/sql/driver") {
		t.Error("database/sql/driver is not ours")
	}
}
