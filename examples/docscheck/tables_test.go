package docscheck

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/examples/internal/docs"
)

// code returns what a cell has in backquotes.
func code(cell string) string { return strings.Trim(cell, "`") }

// plain returns a cell without backquotes, so that it compares with a comment.
func plain(cell string) string { return strings.ReplaceAll(cell, "`", "") }

// parsed returns the files of a package, tests left out.
func parsed(t *testing.T, folder string) []*ast.File {
	t.Helper()
	dir := filepath.Join(docs.Root(t), filepath.FromSlash(folder))
	packages, err := parser.ParseDir(token.NewFileSet(), dir, func(f fs.FileInfo) bool { //nolint:staticcheck // no build tags here, and no types needed
		return !strings.HasSuffix(f.Name(), "_test.go")
	}, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, p := range packages {
		for _, f := range p.Files {
			files = append(files, f)
		}
	}
	return files
}

// fieldComments returns the comments of a struct's fields.
func fieldComments(t *testing.T, folder, name string) map[string]string {
	t.Helper()
	comments := map[string]string{}
	for _, field := range structFields(t, folder, name) {
		for _, ident := range field.Names {
			comments[ident.Name] = field.Doc.Text() + field.Comment.Text()
		}
	}
	return comments
}

// TestOutcomes compares the table of outcomes with the constants.
func TestOutcomes(t *testing.T) {
	var inTable, names []string
	for _, row := range docs.Table(t, "docs/reference/outcomes-and-errors.md", "Outcomes") {
		inTable = append(inTable, code(row.Cells[0]))
	}
	for o := everonce.Executed; o <= everonce.Invalid; o++ {
		names = append(names, o.String())
	}
	sameSet(t, "outcomes-and-errors.md, outcomes", inTable, names)
}

// errorTexts returns the texts of a package's errors. One that stands for another of package driver has its text.
func errorTexts(t *testing.T, folder string) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, f := range parsed(t, folder) {
		for _, d := range f.Decls {
			gen, ok := d.(*ast.GenDecl)
			if !ok || gen.Tok != token.VAR {
				continue
			}
			for _, spec := range gen.Specs {
				v := spec.(*ast.ValueSpec) //nolint:forcetypeassert // a var declaration has no others
				name := v.Names[0].Name
				if !strings.HasPrefix(name, "Err") || len(v.Values) != 1 {
					continue
				}
				switch value := v.Values[0].(type) {
				case *ast.CallExpr:
					if text, ok := value.Args[0].(*ast.BasicLit); ok && len(value.Args) == 1 {
						texts[name] = strings.Trim(text.Value, `"`)
					}
				case *ast.SelectorExpr:
					if value.Sel.Name != name {
						t.Errorf("%s is %s.%s: one error has two names", name, value.X, value.Sel.Name)
					}
					texts[name] = errorTexts(t, "driver")[name]
				}
			}
		}
	}
	return texts
}

// TestErrors compares the tables of errors with the variables, and their texts with what the table says. An error that
// package driver has and the root has not stands there with its package.
func TestErrors(t *testing.T) {
	declared := errorTexts(t, ".")
	for name, text := range errorTexts(t, "driver") {
		if _, ok := declared[name]; !ok {
			declared["driver."+name] = text
		}
	}
	inTable := map[string]bool{}
	for _, heading := range []string{"Errors of a call", "Errors of a store"} {
		for _, row := range docs.Table(t, "docs/reference/outcomes-and-errors.md", heading) {
			name := code(row.Cells[0])
			inTable[name] = true
			if declared[name] != code(row.Cells[1]) {
				t.Errorf("outcomes-and-errors.md:%d: the text of %s is %q, the table says %q", row.Line, name, declared[name], code(row.Cells[1]))
			}
		}
	}
	for name := range declared {
		if !inTable[name] {
			t.Errorf("outcomes-and-errors.md lacks %s", name)
		}
	}
	if len(declared) < 20 {
		t.Errorf("found %d errors only: the test looks in the wrong place", len(declared))
	}
}

// TestRecordFields compares the tables of docs/reference/record.md with the structs.
func TestRecordFields(t *testing.T) {
	for heading, typ := range map[string]reflect.Type{
		"Record":      reflect.TypeFor[driver.Record](),
		"StepRecord":  reflect.TypeFor[driver.StepRecord](),
		"SavedResult": reflect.TypeFor[driver.SavedResult](),
	} {
		var inTable, inStruct []string
		for _, row := range docs.Table(t, "docs/reference/record.md", heading) {
			for _, name := range strings.Split(row.Cells[0], ", ") {
				inTable = append(inTable, code(name))
			}
		}
		for f := range typ.Fields() {
			inStruct = append(inStruct, f.Name)
		}
		sameSet(t, "record.md, "+heading, inTable, inStruct)
	}
}

// TestDecision compares the tables of docs/reference/consume.md with the fields of a decision and with the
// dispositions.
func TestDecision(t *testing.T) {
	var inTable, inStruct, named, names []string
	for _, row := range docs.Table(t, "docs/reference/consume.md", "The decision") {
		inTable = append(inTable, code(row.Cells[0]))
	}
	for f := range reflect.TypeFor[consume.Decision]().Fields() {
		inStruct = append(inStruct, f.Name)
	}
	sameSet(t, "consume.md, the decision", inTable, inStruct)
	for _, row := range docs.Table(t, "docs/reference/consume.md", "Dispositions") {
		named = append(named, code(row.Cells[1]))
		if !strings.EqualFold(code(row.Cells[0]), strings.ReplaceAll(code(row.Cells[1]), "_", "")) {
			t.Errorf("consume.md:%d: %s does not read %s", row.Line, row.Cells[0], row.Cells[1])
		}
	}
	for d := consume.Ack; d.String() != consume.Disposition(0).String(); d++ {
		names = append(names, d.String())
	}
	sameSet(t, "consume.md, dispositions", named, names)
}

// TestErrorClasses compares what Record.LastError may be with what its comment and record.md say: all that
// stands there in quotes.
func TestErrorClasses(t *testing.T) {
	var declared []string
	for _, f := range parsed(t, ".") {
		for _, d := range f.Decls {
			gen, ok := d.(*ast.GenDecl)
			if !ok || gen.Tok != token.CONST {
				continue
			}
			for _, spec := range gen.Specs {
				v := spec.(*ast.ValueSpec) //nolint:forcetypeassert // a const declaration has no others
				if strings.HasPrefix(v.Names[0].Name, "class") && len(v.Values) == 1 {
					if text, ok := v.Values[0].(*ast.BasicLit); ok {
						declared = append(declared, strings.Trim(text.Value, `"`))
					}
				}
			}
		}
	}
	quoted := func(text, quote string) (found []string) {
		for _, match := range regexp.MustCompile(quote+"([a-z_]+)"+quote).FindAllStringSubmatch(text, -1) {
			found = append(found, match[1])
		}
		return found
	}
	sameSet(t, "the comment of Record.LastError", quoted(fieldComments(t, "driver", "Record")["LastError"], `"`), declared)
	for _, row := range docs.Table(t, "docs/reference/record.md", "Record") {
		if row.Cells[0] == "`LastError`" {
			sameSet(t, "record.md, LastError", quoted(row.Cells[1], "`"), declared)
			return
		}
	}
	t.Error("record.md has no row of LastError")
}

func sameSet(t *testing.T, what string, got, want []string) {
	t.Helper()
	got, want = slices.Clone(got), slices.Clone(want)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s: the table has\n%q, the code\n%q", what, got, want)
	}
}

// TestRoundTripTables compares the tables of docs/reference/stores.md with what the stores' tests count.
func TestRoundTripTables(t *testing.T) {
	read := func(file string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(docs.Root(t), filepath.FromSlash(file)))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	counted := map[string][2]string{} // by pgx, by database/sql
	source := read("store/pgxstore/roundtrip_test.go")
	costs := regexp.MustCompile(`costs\{begin: (\d+), commit: (\d+), bare: (\d+)\}`).FindAllStringSubmatch(source, -1)
	if len(costs) != 2 {
		t.Fatalf("TestRoundTrips has %d kinds of costs, want pgx and database/sql", len(costs))
	}
	for _, found := range regexp.MustCompile(`count\("([^"]+)", ([^,]+),`).FindAllStringSubmatch(source, -1) {
		var both [2]string
		for i, cost := range costs {
			n := strings.NewReplacer("cost.begin", cost[1], "cost.commit", cost[2], "cost.bare", cost[3]).Replace(found[2])
			sum := 0
			for _, part := range strings.Split(n, "+") {
				one, err := strconv.Atoi(part)
				if err != nil {
					t.Fatalf("TestRoundTrips counts %q by %q, which this test cannot read", found[1], found[2])
				}
				sum += one
			}
			both[i] = strconv.Itoa(sum)
		}
		counted[found[1]] = both
	}
	inTable := map[string][2]string{}
	for _, row := range docs.Table(t, "docs/reference/stores.md", "PostgreSQL: round trips") {
		inTable[row.Cells[0]] = [2]string{row.Cells[1], row.Cells[2]}
	}
	if !maps.Equal(inTable, counted) {
		t.Errorf("stores.md has\n%v\nTestRoundTrips\n%v", inTable, counted)
	}

	statements := map[string]string{}
	for _, found := range regexp.MustCompile(`\{"([^"]+)", func\(\) \{.*\}, "([^"]+)"\},`).FindAllStringSubmatch(read("store/sqlitestore/roundtrip_test.go"), -1) {
		statements[found[1]] = found[2]
	}
	shown := map[string]string{}
	for _, row := range docs.Table(t, "docs/reference/stores.md", "SQLite: statements") {
		shown[row.Cells[0]] = code(row.Cells[1])
	}
	if !maps.Equal(shown, statements) {
		t.Errorf("stores.md has\n%v\nTestStatementsPerCall\n%v", shown, statements)
	}
}
