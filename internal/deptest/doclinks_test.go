package deptest

import (
	"go/ast"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// documented is what a package exports, and the comments on it.
type documented struct {
	names    map[string]bool   // "Name", "Type.Method" and "Type.Field"
	imports  map[string]string // the path by the name
	comments map[string]string // the text by its place
	opaque   map[string]bool   // types that have methods by embedding or are another package's: any method may be theirs
}

func newDocumented() *documented {
	return &documented{map[string]bool{}, map[string]string{}, map[string]string{}, map[string]bool{}}
}

var version = regexp.MustCompile(`^v[0-9]+$`)

// add reads a file.
func (d *documented) add(t *testing.T, file string, text []byte) {
	t.Helper()
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, file, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range f.Imports {
		imp, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		name := path.Base(imp)
		if version.MatchString(name) {
			name = path.Base(path.Dir(imp))
		}
		if spec.Name != nil {
			name = spec.Name.Name
		}
		d.imports[name] = imp
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if spec, ok := n.(*ast.TypeSpec); ok {
			d.declare(spec)
		}
		return true
	})
	ast.FileExports(f)
	for _, decl := range f.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			d.names[strings.TrimPrefix(receiver(decl)+"."+decl.Name.Name, ".")] = true
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				if v, ok := spec.(*ast.ValueSpec); ok {
					for _, name := range v.Names {
						d.names[name.Name] = true
					}
				}
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if group, ok := n.(*ast.CommentGroup); ok {
			d.comments[set.Position(group.Pos()).String()] = group.Text()
		}
		return true
	})
}

// declare notes a type, its fields and the methods of an interface.
func (d *documented) declare(spec *ast.TypeSpec) {
	d.names[spec.Name.Name] = true
	var fields *ast.FieldList
	switch typ := spec.Type.(type) {
	case *ast.StructType:
		fields = typ.Fields
	case *ast.InterfaceType:
		fields = typ.Methods
	default:
		d.opaque[spec.Name.Name] = true
		return
	}
	for _, field := range fields.List {
		if len(field.Names) == 0 {
			d.opaque[spec.Name.Name] = true
		}
		for _, name := range field.Names {
			d.names[spec.Name.Name+"."+name.Name] = true
		}
	}
}

// receiver returns the name of a method's type.
func receiver(f *ast.FuncDecl) (name string) {
	if f.Recv == nil {
		return ""
	}
	ast.Inspect(f.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && name == "" {
			name = id.Name
		}
		return true
	})
	return name
}

// wrongLinks returns the links of a comment that lead nowhere, or where a reader from outside cannot go.
func (d *documented) wrongLinks(dir, text string, all map[string]*documented) (wrong []string) {
	p := comment.Parser{
		LookupSym: func(string, string) bool { return true },
		LookupPackage: func(name string) (string, bool) {
			if imp, ok := d.imports[name]; ok {
				return imp, true
			}
			if imp, ok := comment.DefaultLookupPackage(name); ok {
				return imp, true
			}
			return "no package " + name, true
		},
	}
	eachLink(p.Parse(text).Content, func(link *comment.DocLink) {
		at, name := d, strings.TrimPrefix(link.Recv+"."+link.Name, ".")
		if link.ImportPath != "" {
			to, isOurs := local(link.ImportPath)
			if !isOurs && !strings.HasPrefix(link.ImportPath, "no package ") {
				return // of others
			}
			if at = all[to]; at == nil || isInternal(to) && !isInternal(dir) {
				wrong = append(wrong, link.ImportPath+"."+name)
				return
			}
		}
		if name != "" && !at.names[name] && !at.opaque[link.Recv] {
			wrong = append(wrong, strings.TrimPrefix(link.ImportPath+"."+name, "."))
		}
	})
	for _, plain := range plainName.FindAllStringSubmatch(text, -1) { // without brackets
		to, isOurs := local(d.imports[plain[1]])
		if plain[1] == "everonce" {
			to, isOurs = "", true
		}
		if isOurs && !all[to].names[plain[2]] {
			wrong = append(wrong, plain[0])
		}
	}
	return wrong
}

// plainName is the name of something in a package.
var plainName = regexp.MustCompile(`\b([a-z]+)\.([A-Z]\w*)`)

func isInternal(dir string) bool { return strings.Contains("/"+dir+"/", "/internal/") }

func eachLink(blocks []comment.Block, fn func(*comment.DocLink)) {
	texts := func(texts []comment.Text) {
		for _, text := range texts {
			if link, ok := text.(*comment.DocLink); ok {
				fn(link)
			}
		}
	}
	for _, block := range blocks {
		switch block := block.(type) {
		case *comment.Paragraph:
			texts(block.Text)
		case *comment.Heading:
			texts(block.Text)
		case *comment.List:
			for _, item := range block.Items {
				eachLink(item.Content, fn)
			}
		}
	}
}

// TestDocLinks: a link in the comment of an exported name leads to one that a reader can open.
func TestDocLinks(t *testing.T) {
	all := map[string]*documented{}
	eachFile(t, func(file string, read func() []byte) {
		if path.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") || strings.Contains(file, "testdata/") {
			return
		}
		dir := strings.TrimPrefix(path.Dir(file), ".")
		if all[dir] == nil {
			all[dir] = newDocumented()
		}
		all[dir].add(t, file, read())
	})
	seen := 0
	for dir, d := range all {
		for place, text := range d.comments {
			seen++
			for _, link := range d.wrongLinks(dir, text, all) {
				t.Errorf("%s: the link [%s] leads nowhere, or into an internal package", place, link)
			}
		}
	}
	if seen < 1000 {
		t.Fatalf("looked at %d comments only: the test looks in the wrong place", seen)
	}
}

// TestWrongLinks plants faults: the rule must tell them.
func TestWrongLinks(t *testing.T) {
	all := map[string]*documented{}
	for dir, text := range map[string]string{
		"":                  "package everonce\n\ntype Key struct{ ID string }\n\nfunc (Key) Hash() {}",
		"internal/sqlstore": "package sqlstore\n\ntype Driver interface{ Read() }",
		"store/x":           "package x\n\nimport (\n\t\"" + rootModule + "\"\n\t\"" + rootModule + "/internal/sqlstore\"\n)\n\ntype Store struct{ sqlstore.Driver }",
	} {
		all[dir] = newDocumented()
		all[dir].add(t, dir, []byte(text))
	}
	for text, wrong := range map[string]bool{
		"[Store], [Store.Read], [everonce.Key.ID], [everonce.Key.Hash], everonce.Key, [time.Now]": false,
		"[Key]": true, "[everonce.Gone]": true, "[everonce.Key.Gone]": true, "everonce.Gone": true, "[driver.Store]": true, "[sqlstore.Driver]": true, "- [Gone]": true,
	} {
		if got := all["store/x"].wrongLinks("store/x", text+"\n", all); (len(got) > 0) != wrong {
			t.Errorf("%s: got %q, want %v", text, got, wrong)
		}
	}
}
