package docscheck

import (
	"cmp"
	"go/ast"
	"go/types"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/natsonce"
	"github.com/everonce/everonce/consume/rabbitonce"
	"github.com/everonce/everonce/consume/sqsonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/examples/internal/docs"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/httponce/client"
	"github.com/everonce/everonce/janitor"
	"github.com/everonce/everonce/outbox/webhook"
	"github.com/everonce/everonce/session/memsession"
	"github.com/everonce/everonce/session/producer/sqlproducer"
	"github.com/everonce/everonce/session/sqlsession"
	"github.com/everonce/everonce/store/dynamostore"
	"github.com/everonce/everonce/store/memstore"
	"github.com/everonce/everonce/store/mongostore"
	"github.com/everonce/everonce/store/mysqlstore"
	"github.com/everonce/everonce/store/pgxstore"
	"github.com/everonce/everonce/store/redisstore"
	"github.com/everonce/everonce/store/sqlitestore"
)

// T and Tx stand for the parameters of generic options: a table shows them by these names.
type (
	T  struct{}
	Tx struct{}
)

// optionTables are the structs of options, the heading of each one's table, and the folder of its source.
var optionTables = []struct {
	heading, folder string
	options         any
}{
	{"everonce.Options", ".", everonce.Options{}},
	{"janitor.Options", "janitor", janitor.Options{}},
	{"memstore.Options", "store/memstore", memstore.Options{}},
	{"sqlitestore.Options", "store/sqlitestore", sqlitestore.Options{}},
	{"pgxstore.Options", "store/pgxstore", pgxstore.Options{}},
	{"mysqlstore.Options", "store/mysqlstore", mysqlstore.Options{}},
	{"redisstore.Options", "store/redisstore", redisstore.Options{}},
	{"dynamostore.Options", "store/dynamostore", dynamostore.Options{}},
	{"mongostore.Options", "store/mongostore", mongostore.Options{}},
	{"mongostore.Index", "store/mongostore", mongostore.Index{}},
	{"httponce.Options", "httponce", httponce.Options{}},
	{"httponce.Route", "httponce", httponce.Route{}},
	{"httponce.Compare", "httponce", httponce.Compare{}},
	{"client.Options", "httponce/client", client.Options{}},
	{"client.SessionOptions", "httponce/client", client.SessionOptions{}},
	{"consume.Spec", "consume", consume.Spec[T]{}},
	{"consume.TxSpec", "consume", consume.TxSpec[T, Tx]{}},
	{"consume.NaturalSpec", "consume", consume.NaturalSpec[T]{}},
	{"consume.Compare", "consume", consume.Compare{}},
	{"consume.RetryPolicy", "consume", consume.RetryPolicy{}},
	{"consume.Workers", "consume", consume.Workers{}},
	{"natsonce.Queue", "consume/natsonce", natsonce.Queue{}},
	{"natsonce.Options", "consume/natsonce", natsonce.Options{}},
	{"natsonce.PublisherOptions", "consume/natsonce", natsonce.PublisherOptions{}},
	{"rabbitonce.Queue", "consume/rabbitonce", rabbitonce.Queue{}},
	{"rabbitonce.Options", "consume/rabbitonce", rabbitonce.Options{}},
	{"rabbitonce.PublisherOptions", "consume/rabbitonce", rabbitonce.PublisherOptions{}},
	{"sqsonce.Queue", "consume/sqsonce", sqsonce.Queue{}},
	{"sqsonce.Options", "consume/sqsonce", sqsonce.Options{}},
	{"sqsonce.PublisherOptions", "consume/sqsonce", sqsonce.PublisherOptions{}},
	{"webhook.Options", "outbox/webhook", webhook.Options{}},
	{"sqlsession.Options", "session/sqlsession", sqlsession.Options{}},
	{"memsession.Options", "session/memsession", memsession.Options{}},
	{"sqlproducer.Options", "session/producer/sqlproducer", sqlproducer.Options{}},
}

// TestOptions compares the tables of docs/reference/options.md with the structs, by reflection, and the
// defaults with what the fields' comments say.
func TestOptions(t *testing.T) {
	names := aliases(t)
	for _, table := range optionTables {
		typ := reflect.TypeOf(table.options)
		_, name, _ := strings.Cut(table.heading, ".")
		defaults := fieldDefaults(t, table.folder, name)
		var inTable, inStruct []string
		for _, row := range docs.Table(t, "docs/reference/options.md", table.heading) {
			field, typeName, def := code(row.Cells[0]), code(row.Cells[1]), row.Cells[2]
			inTable = append(inTable, field)
			f, ok := typ.FieldByName(field)
			if !ok {
				continue // reported below
			}
			if got := nameOf(f.Type, names); got != typeName {
				t.Errorf("options.md:%d: %s is a %s, the table says %s", row.Line, field, got, typeName)
			}
			want := defaults[field]
			switch {
			case want != "":
			case f.Type.Kind() == reflect.Bool:
				want = "false"
			case hasTable(f.Type):
				want = "its fields' defaults"
			default:
				want = "none"
			}
			if want != strings.ReplaceAll(plain(def), "()", "") { // a comment names a function as a link does
				t.Errorf("options.md:%d: the default of %s is %q, its comment says %q", row.Line, field, plain(def), want)
			}
		}
		for f := range typ.Fields() {
			if f.IsExported() {
				inStruct = append(inStruct, f.Name)
			}
		}
		if !slices.Equal(inTable, inStruct) {
			t.Errorf("options.md, %s: the table has\n%q, the struct\n%q", table.heading, inTable, inStruct)
		}
	}
}

// aliases returns what applications call types of package driver, by those.
func aliases(t *testing.T) map[string]string {
	t.Helper()
	names := map[string]string{}
	for folder, pkg := range map[string]string{".": "everonce", "janitor": "janitor"} {
		for _, f := range parsed(t, folder) {
			ast.Inspect(f, func(n ast.Node) bool {
				if spec, ok := n.(*ast.TypeSpec); ok && spec.Assign.IsValid() {
					names[types.ExprString(spec.Type)] = pkg + "." + spec.Name.Name
				}
				return true
			})
		}
	}
	return names
}

var ofDriver = regexp.MustCompile(`\bdriver\.\w+`)

// nameOf is a type as a program writes it: a type of package driver by what applications call it, if there is one.
func nameOf(t reflect.Type, aliases map[string]string) string {
	const here = "github.com/everonce/everonce/examples/docscheck."
	name := strings.NewReplacer("[]uint8", "[]byte", here, "", "docscheck.", "", "struct {}", "struct{}").Replace(t.String())
	return ofDriver.ReplaceAllStringFunc(name, func(of string) string { return cmp.Or(aliases[of], of) })
}

// hasTable reports whether a type is a struct of options with a separate table.
func hasTable(t reflect.Type) bool {
	for _, table := range optionTables {
		if reflect.TypeOf(table.options) == t {
			return true
		}
	}
	return false
}

var (
	saidDefault = regexp.MustCompile(`Default:? (.+?)(?:\.(?: |$)|$)`)
	docLink     = regexp.MustCompile(`\[([\w.]+)\]`)
)

// fieldDefaults returns what the comments of a struct's fields say of their defaults; nothing where they say nothing.
func fieldDefaults(t *testing.T, folder, name string) map[string]string {
	t.Helper()
	defaults := map[string]string{}
	above := ""
	for _, field := range structFields(t, folder, name) {
		own := flat(field.Doc.Text() + field.Comment.Text())
		if own != "" {
			above = own
		}
		said := defaultIn(own)
		parts := strings.Split(said, " and ")
		for i, ident := range field.Names {
			switch byName := regexp.MustCompile(`\b` + ident.Name + `: default (.+?)\.(?: |$)`).FindStringSubmatch(above); {
			case byName != nil: // in the comment of the field above
				defaults[ident.Name] = byName[1]
			case own == "" && !strings.Contains(above, ident.Name):
			case strings.Contains(above+" ", " Required. "):
				defaults[ident.Name] = "required"
			case len(field.Names) > 1 && len(parts) == len(field.Names): // "Min and Max … Default 1 s and 1 minute."
				defaults[ident.Name] = parts[i]
			default:
				defaults[ident.Name] = said
			}
		}
	}
	return defaults
}

// defaultIn returns what a comment says after the word "Default"; "" where it says nothing.
func defaultIn(comment string) string {
	if found := saidDefault.FindStringSubmatch(comment); found != nil {
		return found[1]
	}
	return ""
}

// flat is a comment as one line, with its links as text.
func flat(comment string) string {
	return docLink.ReplaceAllString(strings.Join(strings.Fields(comment), " "), "$1")
}

// structFields returns the fields of a struct, in their order.
func structFields(t *testing.T, folder, name string) (fields []*ast.Field) {
	t.Helper()
	for _, f := range parsed(t, folder) {
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || spec.Name.Name != name {
				return true
			}
			if st, ok := spec.Type.(*ast.StructType); ok {
				fields = st.Fields.List
			}
			return false
		})
	}
	if len(fields) == 0 {
		t.Fatalf("%s has no struct %s", folder, name)
	}
	return fields
}

// TestLimits compares the table of limits with the constants that it names.
func TestLimits(t *testing.T) {
	limits := map[string]int{
		"MaxIDLen": driver.MaxIDLen, "MaxScopeLen": driver.MaxScopeLen, "MaxFingerprintAlgLen": driver.MaxFingerprintAlgLen,
		"MaxStepNameLen": driver.MaxStepNameLen, "MaxSteps": driver.MaxSteps, "MaxSummaryLen": driver.MaxSummaryLen,
		"MaxBatch": driver.MaxBatch, "httponce.MaxKeyLen": httponce.MaxKeyLen,
	}
	for _, row := range docs.Table(t, "docs/reference/options.md", "Limits") {
		name := code(row.Cells[2])
		if name == "" {
			continue
		}
		number, _, _ := strings.Cut(strings.ReplaceAll(row.Cells[1], ";", ""), " ")
		if limit, ok := limits[name]; !ok || strconv.Itoa(limit) != number {
			t.Errorf("options.md:%d: %s is %d, the table says %s", row.Line, name, limit, number)
		}
		delete(limits, name)
	}
	for name := range limits {
		t.Errorf("options.md, limits: the table lacks %s", name)
	}
}

// TestCallOptions compares the table of call options with the functions that return one, and the calls that it
// names for each with the sets of options that the calls take.
func TestCallOptions(t *testing.T) {
	var declared []string
	taken := map[string][]string{} // the calls that take an option, by what call.go calls it
	for _, f := range parsed(t, ".") {
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil || !d.Name.IsExported() || d.Type.Results == nil || len(d.Type.Results.List) != 1 {
					continue
				}
				if ident, ok := d.Type.Results.List[0].Type.(*ast.Ident); ok && (ident.Name == "CallOption" || ident.Name == "Fingerprint") {
					declared = append(declared, d.Name.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					v, ok := spec.(*ast.ValueSpec)
					if !ok || len(v.Values) != 1 {
						continue
					}
					call, ok := callsByOptions[v.Names[0].Name]
					if !ok {
						continue
					}
					ast.Inspect(v.Values[0], func(n ast.Node) bool {
						if ident, ok := n.(*ast.Ident); ok {
							taken[ident.Name] = append(taken[ident.Name], call)
						}
						return true
					})
				}
			}
		}
	}
	var inTable []string
	for _, row := range docs.Table(t, "docs/reference/options.md", "Call options") {
		option := code(row.Cells[0])
		inTable = append(inTable, option)
		want := slices.Clone(taken[optOf(option)])
		var got []string
		for _, call := range strings.Split(row.Cells[1], ", ") {
			got = append(got, code(call))
		}
		if row.Cells[1] == "all" {
			got = slices.Collect(maps.Values(callsByOptions))
		}
		sameSet(t, "options.md, the calls that take "+option, got, want)
	}
	sameSet(t, "options.md, call options", inTable, declared)
}

// callsByOptions are the sets of options in call.go, and the calls that take them.
var callsByOptions = map[string]string{
	"doOptions": "Do", "transactOptions": "Transact", "batchOptions": "TransactBatch", "doTxOptions": "DoTx", "stepOptions": "Step", "stepTxOptions": "StepTx",
	"lookupOptions": "Lookup",
}

// optOf is what call.go calls an option.
func optOf(option string) string {
	if strings.HasPrefix(option, "Fingerprint") {
		return "optFingerprint"
	}
	return "opt" + strings.TrimPrefix(option, "With")
}
