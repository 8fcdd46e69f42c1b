package deps

import (
	"slices"
	"strings"
	"testing"
)

// mayImport says what of ours a package may import, apart from the root and what lies in its own folder:
// folders, with all below them. The first entry that a package lies in counts. Tests are not bound by it.
var mayImport = []struct {
	pkg     string
	imports []string
}{
	{"driver/drivertest", []string{"driver", "store/memstore"}},
	{"driver/transition", []string{"driver"}},
	{"driver", nil},
	{"store", []string{"internal/sqlstore", "internal/sqldb", "internal/retry", "driver"}}, // never another store
	{"janitor", []string{"driver", "internal/retry", "internal/panics"}},
	{"lookalike", []string{"driver"}},
	{"oncetest", []string{"driver", "store/memstore", "consume"}},

	// The patterns and transports take a receiver, never a store.
	{"backlog", []string{"internal/sqlqueue"}},
	{"inbox", []string{"driver", "consume", "backlog", "internal/envelope", "internal/sqldb", "internal/sqlqueue", "internal/retry"}}, // the SQL handle, not a database
	{"outbox/cloudeventsonce", []string{"outbox", "internal/envelope"}},
	{"outbox/replication", []string{"internal/retry"}}, // it wakes whom it is given
	{"outbox/webhook", []string{"outbox", "consume", "internal/envelope"}},
	{"outbox", []string{"driver", "consume", "backlog", "internal/envelope", "internal/sqldb", "internal/sqlqueue", "internal/retry"}},
	{"saga", []string{"driver", "outbox", "consume", "backlog", "internal/sqldb", "internal/sqlqueue", "internal/retry"}},
	{"session/producer/sqlproducer", []string{"driver", "session/producer", "internal/sqldb"}},
	{"session/producer", nil},
	{"session/sqlsession", []string{"driver", "session", "internal/sqldb", "internal/retry", "internal/placed"}},
	{"session", []string{"driver"}},
	{"raftonce", []string{"session", "driver", "internal/sessioncalls", "internal/retry"}},
	{"httponce/internal/wire", nil},
	{"httponce/client", []string{"driver", "session", "httponce/internal/wire", "internal/sessioncalls"}},
	{"httponce/proxy", []string{"httponce/internal/wire", "internal/socketurl"}},
	{"httponce", []string{"driver", "session", "httponce/internal/wire", "internal/jsonform"}},
	{"grpconce", nil},
	{"consume/rabbitonce", []string{"driver", "consume", "outbox", "internal/envelope", "internal/retry"}}, // it publishes too
	{"consume/kafkaonce", []string{"driver", "consume", "outbox", "internal/envelope", "internal/sqldb", "internal/retry"}},
	{"consume/sqsonce", []string{"driver", "consume", "outbox", "internal/envelope", "internal/retry"}},
	{"consume/natsonce", []string{"driver", "consume", "outbox", "internal/envelope", "internal/retry"}},
	{"consume/keys", []string{"consume"}},
	{"consume", []string{"driver", "internal/envelope", "internal/jsonform", "internal/retry"}},
	{"otelonce", []string{"driver", "janitor", "backlog", "httponce", "consume", "outbox", "inbox", "saga", "internal/retry"}}, // it observes them all
	{"dashboard", nil},

	{"demo", []string{"driver", "httponce", "store/sqlitestore"}}, // and no other store, so that it builds fast

	// Packages that no other one links may import all, except for the program.
	{"cmd", everything},
	{"examples", everything},
	{"tests", everything},
	{"bench", everything},
	{"internal/sqlstore", []string{"driver", "internal/sqldb", "internal/retry"}},
	{"internal/sqldb", []string{"driver", "internal/retry"}},
	{"internal/sqlqueue", []string{"driver", "internal/sqldb", "internal/retry"}},
	{"internal/waiting", []string{"driver", "internal/retry", "internal/panics"}},
	{"internal/envelope", nil},
	{"internal/probe", nil},
	{"internal/retry", nil},
	{"internal/sessioncalls", []string{"session"}},
	{"internal/panics", nil},
	{"internal/doomed", nil},
	{"internal/placed", nil},
	{"internal", everything},
}

var everything = []string{"driver", "store", "janitor", "lookalike", "oncetest", "backlog", "inbox", "outbox", "saga", "session", "raftonce", "httponce", "grpconce", "consume", "otelonce", "dashboard", "demo", "internal"}

func TestDirectionOfImports(t *testing.T) {
	for path, p := range ours(t) {
		from, _ := local(path)
		for _, imp := range p.Imports {
			to, isOurs := local(imp)
			if isOurs && !allowed(from, to) {
				t.Errorf("%s imports %s: against the direction of imports (docs/design.md, the house)", name(from), name(to))
			}
		}
		for _, imp := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			if to, isOurs := local(imp); isOurs && within(to, "cmd") && !within(from, "cmd") {
				t.Errorf("%s imports %s: nothing imports the program", name(from), name(to))
			}
		}
	}
}

func TestEveryPackageHasItsPlace(t *testing.T) {
	for path := range ours(t) {
		from, _ := local(path)
		if from == "" {
			continue
		}
		if !slices.ContainsFunc(mayImport, func(r struct {
			pkg     string
			imports []string
		},
		) bool {
			return within(from, r.pkg)
		}) {
			t.Errorf("%s is in no line of mayImport: say what it may import", from)
		}
	}
}

func allowed(from, to string) bool {
	switch {
	case from == "": // the engine uses the contract, and its own leaf packages
		return slices.Contains([]string{"driver", "internal/waiting", "internal/retry", "internal/doomed", "internal/placed", "internal/panics", "internal/probe"}, to)
	case within(from, "driver") && !within(from, "driver/drivertest"): // the contract imports no other package
		return from == "driver/transition" && to == "driver"
	}
	if to == "" || within(to, from) {
		return true
	}
	for _, rule := range mayImport {
		if !within(from, rule.pkg) {
			continue
		}
		return within(to, rule.pkg) && rule.pkg != "store" ||
			slices.ContainsFunc(rule.imports, func(dir string) bool { return within(to, dir) })
	}
	return false
}

func name(dir string) string {
	if dir == "" {
		return "the root package"
	}
	return dir
}

// TestAllowed plants faults: the table must tell them.
func TestAllowed(t *testing.T) {
	for _, tc := range []struct {
		from, to string
		want     bool
	}{
		{"store/memstore", "", true},
		{"", "store/memstore", false},
		{"", "driver", true},
		{"", "driver/transition", false},
		{"", "internal/waiting", true},
		{"", "internal/sqlstore", false},
		{"driver", "", false},
		{"driver/transition", "driver", true},
		{"driver/drivertest", "", true},
		{"store/sqlitestore", "internal/sqlstore", true},
		{"store/sqlitestore", "store/pgxstore", false},
		{"store/sqlitestore", "store/memstore", false},
		{"store/sqlitestore/internal/x", "store/pgxstore", false},
		{"store/redisstore", "store/sqlitestore", false},
		{"driver/drivertest", "store/pgxstore", false},
		{"httponce", "store/memstore", false},
		{"httponce/client", "httponce/internal/wire", true},
		{"httponce/client", "httponce", false},
		{"httponce/proxy", "httponce", false},
		{"consume/kafkaonce", "store/pgxstore", false},
		{"consume/kafkaonce", "consume", true},
		{"outbox", "internal/sqldb", true},
		{"outbox", "internal/sqlstore", false},
		{"outbox", "store/pgxstore", false},
		{"examples", "cmd/everonce", false},
		{"cmd/everonce", "store/pgxstore", true},
		{"cmd/everonce", "demo", true},
		{"demo", "store/sqlitestore", true},
		{"demo", "store/pgxstore", false},
		{"cmd/everonce", "cmd/everonce/demo", true},
		{"elsewhere", "store/pgxstore", false},
	} {
		if got := allowed(tc.from, tc.to); got != tc.want {
			t.Errorf("%s imports %s: allowed is %v, want %v", name(tc.from), name(tc.to), got, tc.want)
		}
	}
}

// linked are the packages that users' programs link.
func linked(t *testing.T) []string {
	t.Helper()
	var paths []string
	for path, p := range ours(t) {
		dir, _ := local(path)
		switch {
		case within(dir, "cmd"), within(dir, "examples"), within(dir, "internal"), within(dir, "driver/drivertest"), within(dir, "oncetest"):
		case len(p.Imports) == 0: // only tests
		default:
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}

func TestUsersLinkNoTestCode(t *testing.T) {
	for _, path := range linked(t) {
		for dep := range listed(t, "-deps", path) {
			if dep == "testing" && within(path, rootModule+"/raftonce") {
				continue // hashicorp/raft has code for tests beside the rest
			}
			if dep == "testing" || strings.HasPrefix(dep, "testing/") || strings.HasPrefix(dep, "pgregory.net/rapid") ||
				strings.HasPrefix(dep, "github.com/anishathalye/porcupine") || strings.Contains(dep, "toxiproxy") ||
				strings.HasSuffix(dep, "/drivertest") || strings.HasSuffix(dep, "/oncetest") {
				t.Errorf("%s links %s", path, dep)
			}
		}
	}
}

// mayLink says which leaf libraries a folder of the root module may link, for the reasons in docs/adr/libraries.md.
var mayLink = map[string][]string{
	"consume":                 {"github.com/go-json-experiment/json"},
	"consume/internal/copies": {"github.com/go-json-experiment/json"},
	"consume/internal/event":  {"github.com/go-json-experiment/json"},
	"consume/keys":            {"github.com/go-json-experiment/json"},
	"outbox":                  {"github.com/google/uuid", "github.com/go-json-experiment/json"},
	"outbox/webhook":          {"github.com/google/uuid", "github.com/go-json-experiment/json"},
	"inbox":                   {"github.com/google/uuid", "github.com/go-json-experiment/json"},
	"saga":                    {"github.com/google/uuid", "github.com/go-json-experiment/json"},
	"httponce": {
		"github.com/dunglas/httpsfv",
		"github.com/go-json-experiment/json",
	},
	"httponce/client":        {"github.com/dunglas/httpsfv"},
	"httponce/proxy":         {"github.com/dunglas/httpsfv"},
	"httponce/internal/wire": {"github.com/dunglas/httpsfv"},
}

// TestClientLinksNoEngine: a program that only sends requests links neither the engine nor the server.
func TestClientLinksNoEngine(t *testing.T) {
	for dep := range listed(t, "-deps", rootModule+"/httponce/client") {
		if dep == rootModule || dep == rootModule+"/httponce" {
			t.Errorf("httponce/client links %s", dep)
		}
	}
}

// TestCoreLinksTheStandardLibraryOnly: the packages of the root module, except for the suites that others run in their
// tests, need only the standard library, this module, and no leaf but their own. So the SQL engine imports no driver.
func TestCoreLinksTheStandardLibraryOnly(t *testing.T) {
	others := modulePaths(t)
	for _, path := range linked(t) {
		if moduleOf(path, others) != rootModule {
			continue
		}
		dir, _ := local(path)
		for dep, p := range listed(t, "-deps", path) {
			if slices.ContainsFunc(mayLink[dir], func(leaf string) bool { return within(dep, leaf) }) {
				continue
			}
			if _, isOurs := local(dep); !p.Standard && (!isOurs || moduleOf(dep, others) != rootModule) {
				t.Errorf("%s needs %s", path, dep)
			}
		}
	}
}

// moduleOf returns the module, of ours, that a package belongs to.
func moduleOf(pkg string, modules []string) string {
	best := ""
	for _, m := range modules {
		if within(pkg, m) && len(m) > len(best) {
			best = m
		}
	}
	return best
}
