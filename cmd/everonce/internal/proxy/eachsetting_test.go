package proxy

import (
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/everonce/everonce/cmd/everonce/internal/proxy/config"
)

// effectiveOptions returns the options that a configuration results in, by name: of the middleware, of its default
// route, of the route /a, and of the upstream.
func effectiveOptions(t *testing.T, c *config.Config) map[string]string {
	t.Helper()
	s := &Server{conf: c, log: slog.New(slog.DiscardHandler)}
	opts, err := s.options()
	if err != nil {
		t.Fatal(err)
	}
	up, err := s.upstreamOptions(&url.URL{Scheme: "https", Host: "x"})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	spell(all, "", reflect.ValueOf(*opts))
	spell(all, "/a ", reflect.ValueOf(opts.Routes["/a"]))
	spell(all, "upstream ", reflect.ValueOf(*up))
	return all
}

func spell(all map[string]string, at string, v reflect.Value) {
	for i := range v.NumField() {
		name, f := at+v.Type().Field(i).Name, v.Field(i)
		switch f.Kind() {
		case reflect.Struct:
			if strings.HasSuffix(name, "Route") {
				name = at + "Route"
			}
			spell(all, name+".", f)
		case reflect.Func, reflect.Pointer, reflect.Interface:
			all[name] = fmt.Sprint("set: ", !f.IsNil())
		case reflect.Map:
			if v.Type().Field(i).Name != "Routes" {
				all[name] = fmt.Sprint(f.Interface())
			}
		default:
			all[name] = fmt.Sprint(f.Interface())
		}
	}
}

// changed are the options that differ.
func changed(before, after map[string]string) map[string]string {
	differ := map[string]string{}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(before)), slices.Collect(maps.Keys(after))) {
		if before[name] != after[name] {
			differ[name] = after[name]
		}
	}
	return differ
}

// A setting changes the option that it is called after, to what it says, and no other; one of a route changes it there
// alone.
func TestEachSettingChangesItsOwnOption(t *testing.T) {
	ca, key := writePair(t, t.TempDir(), "upstream")
	none := map[string]string{}
	whole := map[string]struct {
		value   string
		changes map[string]string
	}{
		"upstream-ca":       {ca, map[string]string{"upstream TLS": "set: true"}},
		"upstream-tls-cert": {ca, map[string]string{"upstream TLS": "set: true"}},
		"upstream-tls-key":  {key, map[string]string{"upstream TLS": "set: true"}},
		"upstream-key":      {"downstream", map[string]string{"upstream DownstreamKey": "true"}},
		"upstream-host":     {"true", map[string]string{"upstream UpstreamHost": "true"}},
		"trust-forwarded":   {"true", map[string]string{"upstream TrustForwarded": "true"}},
		"upstream-connect":  {"11s", map[string]string{"upstream ConnectTimeout": "11s"}},
		"upstream-idle":     {"12s", map[string]string{"upstream IdleTimeout": "12s"}},
		"upstream-max-idle": {"13", map[string]string{"upstream MaxIdle": "13"}},
		"key-header":        {"X-Key", map[string]string{"KeyHeader": "X-Key", "upstream KeyHeader": "X-Key"}},
		"marker":            {"X-Again", map[string]string{"Marker": "X-Again"}},
		"echo-key":          {"true", map[string]string{"EchoKey": "true"}},
		"problem-base":      {"https://example.com/", map[string]string{"ProblemBase": "https://example.com/", "upstream ProblemBase": "https://example.com/"}},
		"profile":           {"stripe", map[string]string{"Profile": "stripe", "upstream StripeErrors": "true"}},
		"retry-after":       {"14s", map[string]string{"RetryAfter": "14s"}},
		"max-waiting":       {"15", map[string]string{"MaxWaiting": "15"}},
		"max-still-running": {"16", map[string]string{"MaxStillRunning": "16"}},
		"max-body-memory":   {"18", map[string]string{"MaxBodyMemory": "18"}},
		"max-spool":         {"17", map[string]string{"MaxSpool": "17"}},
		// These are not options of the library: separate tests cover them.
		"listen": {":1", none}, "upstream": {"http://x", none}, "store": {"memory:", none}, "table-prefix": {"p_", none}, "schema": {"s", none},
		"identity-secret-file": {ca, none}, "admin": {"none", none}, "admin-anywhere": {"true", none}, "tls-cert": {ca, none}, "tls-key": {ca, none},
		"header-timeout": {"1s", none}, "client-idle": {"1s", none}, "stall": {"1s", none}, "drain-timeout": {"1s", none}, "access-log": {"false", none}, "log-level": {"warn", none},
	}
	beside := map[string]string{"upstream-tls-cert": "upstream-tls-key: " + key, "upstream-tls-key": "upstream-tls-cert: " + ca} // that it goes with
	routes := map[string][3]string{                                                                                              // its value, the option, and what that is then
		"methods":             {"PUT,POST", "Methods", "[PUT POST]"},
		"required":            {"true", "Required", "true"},
		"key-json":            {"/key", "KeyJSON", "/key"},
		"key-pattern":         {".+", "CheckKey", "set: true"},
		"principal":           {"none", "", ""}, // TestPrincipalOfEverySpelling
		"principal-required":  {"true", "", ""}, // TestPrincipalRequired
		"unknown":             {"reexecute", "Policy", "reexecute"},
		"save":                {"408=released", "Save", "map[408:released]"},
		"retention":           {"18h", "Lifetime.Retention", "18h0m0s"},
		"remember":            {"19h", "Lifetime.Remember", "19h0m0s"},
		"lease":               {"21s", "Lease", "21s"},
		"wait":                {"22s", "Wait", "22s"},
		"deadline":            {"23s", "Deadline", "23s"},
		"answer-within":       {"24s", "AnswerWithin", "24s"},
		"end-with-client":     {"true", "EndWithClient", "true"},
		"fail-open":           {"true", "FailOpen", "true"},
		"max-body":            {"25", "MaxBody", "25"},
		"body-timeout":        {"26s", "BodyTimeout", "26s"},
		"max-answer":          {"27", "MaxAnswer", "27"},
		"compare-headers":     {"X-F", "Compare.Headers", "[X-F]"},
		"compare-ignore-host": {"true", "Compare.IgnoreHost", "true"},
		"compare-json":        {"true", "Compare.JSON", "true"},
		"compare-json-only":   {"/only", "Compare.JSONOnly", "[/only]"},
		"compare-json-except": {"/except", "Compare.JSONExcept", "[/except]"},
		"allow-headers":       {"X-A", "Header.Allow", "[X-A]"},
		"deny-headers":        {"X-D", "Header.Deny", "[X-D]"},
	}
	file := func(text string) *config.Config {
		path := filepath.Join(t.TempDir(), "proxy.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		fs := pflag.NewFlagSet("proxy", pflag.ContinueOnError)
		config.AddFlags(fs)
		c, _, err := config.Load(fs, nil, path)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	before := effectiveOptions(t, file("routes: {/a: {required: false}}"))
	check := func(how, text string, want map[string]string) {
		t.Helper()
		if got := changed(before, effectiveOptions(t, file(text))); !maps.Equal(got, want) {
			t.Errorf("%s changes %v, want %v", how, got, want)
		}
	}
	for _, f := range config.Fields() {
		if s, ok := whole[f.Key]; ok {
			check(f.Key, fmt.Sprintf("%s: %q\n%s\nroutes: {/a: {required: false}}", f.Key, s.value, beside[f.Key]), s.changes)
			continue
		}
		r, ok := routes[f.Key]
		if !ok {
			t.Errorf("%s: the table has no entry for it", f.Key)
			continue
		}
		there, everywhere := map[string]string{}, map[string]string{}
		if r[1] != "" {
			there["/a "+r[1]] = r[2]
			everywhere["/a "+r[1]], everywhere["Route."+r[1]] = r[2], r[2]
		}
		check(f.Key+" of a route", fmt.Sprintf("routes: {/a: {%s: %q}}", f.Key, r[0]), there)
		if f.Key == "required" {
			delete(everywhere, "/a "+r[1]) // it says otherwise
		}
		check(f.Key, fmt.Sprintf("%s: %q\nroutes: {/a: {required: false}}", f.Key, r[0]), everywhere)
	}
}
