package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
)

func load(t *testing.T, file string, environ []string, args ...string) (*Config, []string, error) {
	t.Helper()
	path := ""
	if file != "" {
		path = filepath.Join(t.TempDir(), "proxy.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fs := pflag.NewFlagSet("proxy", pflag.ContinueOnError)
	AddFlags(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return Load(fs, environ, path)
}

// A flag wins over a variable, that over the file, and that over the default.
func TestPrecedence(t *testing.T) {
	const file = "wait: 1s\nlease: 2s\nremember: 3s\nfail-open: true\n"
	environ := []string{"EVERONCE_WAIT=4s", "EVERONCE_LEASE=5s", "EVERONCE_LOG_LEVEL=warn", "EVERONCE_TYPO=1", "EVERONCE_CONFIG=x", "OTHER=1", "EVERONCE_REMEMBER="}
	c, strangers, err := load(t, file, environ, "--wait=6s", "--fail-open=false")
	if err != nil {
		t.Fatal(err)
	}
	if r := c.Route; r.Wait != 6*time.Second || r.Lease != 5*time.Second || r.Remember != 3*time.Second || r.Retention != 24*time.Hour || r.FailOpen || c.LogLevel != "warn" {
		t.Errorf("%+v", c)
	}
	if len(strangers) != 1 || strangers[0] != "EVERONCE_TYPO" {
		t.Errorf("strangers: %v", strangers)
	}
}

// A YAML anchor may be used again.
func TestAnchors(t *testing.T) {
	c, _, err := load(t, "deny-headers: &private [X-A, X-B]\nroutes:\n  /a: &strict\n    required: true\n    wait: &soon 3s\n  /b: *strict\n  /c:\n    deny-headers: *private\n    deadline: *soon\n", nil)
	if err != nil {
		t.Fatal(err)
	}
	if r := c.Routes["/b"]; !r.Required || r.Wait != 3*time.Second {
		t.Errorf("/b: %+v", r)
	}
	if r := c.Routes["/c"]; r.Deadline != 3*time.Second || !slices.Equal(r.DenyHeaders, []string{"X-A", "X-B"}) {
		t.Errorf("/c: %+v", r)
	}
}

// A route begins with what holds for all, wherever that was set.
func TestRoutesInherit(t *testing.T) {
	c, _, err := load(t, `
required: true
save: {409: released, 5xx: unknown}
routes:
  "POST /payments/{id}":
    retention: 90d
    methods: [POST]
    unknown: reexecute
    max-body: 64KiB
    compare-headers: [Content-Type, X-Api-Version]
  api.example.com/:
    required: false
    save: {5xx: saved}
    methods: []
`, nil, "--lease=7s")
	if err != nil {
		t.Fatal(err)
	}
	pay, other := c.Routes["POST /payments/{id}"], c.Routes["api.example.com/"]
	if !pay.Required || pay.Lease != 7*time.Second || pay.Retention != 90*24*time.Hour || len(pay.Methods) != 1 || pay.Unknown != everonce.Reexecute || pay.MaxBody != 64<<10 || len(pay.Compare.Headers) != 2 {
		t.Errorf("%+v", pay)
	}
	if save := pay.Options().Save; save["409"] != httponce.Released || save["5xx"] != httponce.Unknown {
		t.Errorf("%v", save)
	}
	if m := other.Options().Methods; m == nil || len(m) != 0 {
		t.Errorf("methods: %v, want none at all", m)
	}
	if other.Required || c.Route.Unknown != everonce.Refuse || len(c.Routes) != 2 {
		t.Errorf("%+v", other)
	}
	if save := other.Options().Save; save["5xx"] != httponce.Saved || save["409"] != 0 {
		t.Errorf("%v", save)
	}
}

// A list flag that is repeated adds its values: if only the last one were used, the others would silently be
// unprotected.
func TestRepeatedFlags(t *testing.T) {
	c, _, err := load(t, "", []string{"EVERONCE_METHODS=PATCH"}, "--methods=POST", "--methods=PUT", "--save=409=released", "--save=5xx=unknown", "--lease=1s", "--lease=2s")
	if err != nil {
		t.Fatal(err)
	}
	if r := c.Route; !slices.Equal(r.Methods, []string{"POST", "PUT"}) || len(r.Save) != 2 || r.Lease != 2*time.Second {
		t.Errorf("%v %v %v", r.Methods, r.Save, r.Lease)
	}
}

// A flag whose value is empty, such as that from an unset shell variable, is rejected. Read as an empty list, it would
// silently remove a protection; read as the default, it would override the file.
func TestEmptyFlagsAreRefused(t *testing.T) {
	for _, f := range Fields() {
		for _, arg := range []string{"--" + f.Key + "=", "--" + f.Key + "= , "} {
			fs := pflag.NewFlagSet("proxy", pflag.ContinueOnError)
			AddFlags(fs)
			if err := fs.Parse([]string{arg}); !errors.Is(err, ErrEmpty) || !strings.Contains(err.Error(), "--"+f.Key) {
				t.Errorf("%s: %v", arg, err)
			}
		}
	}
}

// A key must match as a whole. An invalid expression does not become valid because the program puts it into another
// one.
func TestKeyPattern(t *testing.T) {
	check := func(expression string) func(string) error {
		c, _, err := load(t, "key-pattern: '"+expression+"'\n", nil)
		if err != nil {
			t.Fatal(err)
		}
		return c.Route.Options().CheckKey
	}
	if check("") != nil {
		t.Error("without a pattern keys are checked")
	}
	for expression, keys := range map[string]map[string]bool{
		"[0-9a-f]{4}": {"00af": true, "00AF": false, "00af0": false, "x00af": false, "00af\n": false},
		"a|b":         {"a": true, "b": true, "ab": false, "ax": false, "xb": false},
		"^a$":         {"a": true, "a\n": false},
		"(?i)order-.": {"ORDER-7": true, "order-77": false},
		"x{1,2},y":    {"xx,y": true, "x": false},
	} {
		whole := check(expression)
		for key, want := range keys {
			if err := whole(key); (err == nil) != want || err != nil && !strings.Contains(err.Error(), expression) {
				t.Errorf("%q and the pattern %s: %v", key, expression, err)
			}
		}
	}
	if _, _, err := load(t, "", nil, "--key-pattern=a)(?:b"); !errors.Is(err, ErrInvalid) {
		t.Errorf("what is no expression: %v", err)
	}
}

// Errors say where a setting is wrong, and do not repeat its value.
func TestErrorsSayWhere(t *testing.T) {
	for want, file := range map[string]string{
		`proxy.yaml:2: unknown key "retenton"`:             "wait: 1s\nretenton: 3d\n",
		`proxy.yaml:3: "listen" is a setting of the whole`: "routes:\n  /a:\n    listen: :80\n",
		`proxy.yaml:4: unknown key "retenton"`:             "routes:\n  /a:\n    wait: 1s\n    retenton: 3d\n",
		`proxy.yaml:2: "wait" appears twice`:               "wait: 1s\nwait: 2s\n",
		`proxy.yaml:3: the route "/a" appears twice`:       "routes:\n  /a: {}\n  /a: {}\n",
		`proxy.yaml:2: wait: must be a duration`:           "lease: 1s\nwait: hunter2\n",
		`proxy.yaml:3: max-body: must be a size`:           "routes:\n  /a:\n    max-body: hunter2\n",
		`proxy.yaml:1: max-body: must be a size`:           "max-body: 0\n", // which would stand for the default
		`proxy.yaml:2: max-spool: must be a size`:          "wait: 1s\nmax-spool: -1MiB\n",
		`proxy.yaml:1: stall: must be a duration above 0`:  "stall: 0s\n",
		`proxy.yaml:1: deadline: must be a duration above`: "deadline: 0d\n",
		`proxy.yaml:3: lease: must be a duration above 0`:  "routes:\n  /a:\n    lease: 0s\n",
		`proxy.yaml:1: body-timeout: must be a duration`:   "body-timeout: -1s\n",
		`proxy.yaml:1: required: must be true or false`:    "required: hunter2\n",
		`proxy.yaml:1: principal: must be header:NAME`:     "principal: hunter2\n",
		`proxy.yaml:1: unknown: must be refuse or`:         "unknown: reconcile\n",
		`proxy.yaml:1: save: must be pairs`:                "save: {409: hunter2}\n",
		`proxy.yaml:1: max-waiting: must be a number`:      "max-waiting: -1\n",
		`proxy.yaml:1: key-pattern: must be a regular`:     "key-pattern: (hunter2\n",
		`proxy.yaml:1: profile: must be default or stripe`: "profile: hunter2\n",
		`proxy.yaml:1: settings are expected here`:         "- wait\n",
		`proxy.yaml:1: "key-pattern" takes one value`:      "key-pattern: [a-z]\n", // a list, and a part of what was meant
		`proxy.yaml:1: "store" takes one value`:            "store: {sqlite: hunter2}\n",
		`proxy.yaml:1: "methods" takes a list`:             "methods: {POST: hunter2}\n",
		`proxy.yaml:3: a second YAML document`:             "wait: 1s\n---\nlease: hunter2\n",
		`proxy.yaml:2: settings are expected here`:         "routes:\n  /a: hunter2\n",
		`proxy.yaml:1: routes must be settings by pattern`: "routes: hunter2\n",
		`proxy.yaml:1: an element of a list`:               "methods: [[hunter2]]\n",
		`proxy.yaml:2: an element of a list must be`:       "wait: 1s\ndeny-headers: [\"hunter2,X\"]\n",
		`an element of a list must be a text`:              "methods:\n  - POST\n  -\n",
		`proxy.yaml:2: "methods" has no value: leave it`:   "wait: 1s\nmethods:\nlease: 1s\n",
		`proxy.yaml:3: "methods" has no value`:             "routes:\n  /a:\n    methods:\n",
		`proxy.yaml:1: "identity-secret-file" has no`:      "identity-secret-file: ~\n",
		`proxy.yaml: line 2`:                               "a: 1\n\tb: hunter2\n",
		`proxy.yaml: line 2: mapping values are not allowed in this context (a value that has a colon at its end, or before a space, needs quotes)`: "wait: 1s\nstore: memory:\n",
	} {
		_, _, err := load(t, file, nil)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v, want %q", file, err, want)
		}
	}
	for want, given := range map[string][]string{
		"--wait: must be":        {"--wait=hunter2"},
		"EVERONCE_WAIT: must be": nil,
	} {
		if _, _, err := load(t, "wait: 1s\n", []string{"EVERONCE_WAIT=hunter2"}, given...); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v: %v, want %q", given, err, want)
		}
	}
	if _, _, err := load(t, "", nil); err != nil {
		t.Errorf("nothing at all: %v", err)
	}
	if _, _, err := load(t, "# nothing\n", nil); err != nil {
		t.Errorf("an empty file: %v", err)
	}
}

// A variable of only blanks and commas is as empty as an empty one: it removes no setting of the file.
func TestBlankVariablesAreNotSet(t *testing.T) {
	c, _, err := load(t, "save: {409: released}\nmethods: [PUT]\n", []string{"EVERONCE_SAVE= ", "EVERONCE_METHODS=,", "EVERONCE_WAIT=\t"})
	if err != nil {
		t.Fatal(err)
	}
	if c.Route.Save["409"] != httponce.Released || !slices.Equal(c.Route.Methods, []string{"PUT"}) || c.Route.Wait != 5*time.Second {
		t.Errorf("it has %+v", c.Route)
	}
}

// The printed file has the same settings, without the passwords.
func TestPrintedIsAFile(t *testing.T) {
	const store = "postgres://user:hunter2@db/keys"
	c, _, err := load(t, "routes:\n  POST /a:\n    retention: 90d\n    save: {4xx: unknown}\n    unknown: reexecute\n    fail-open: false\n  /b: {methods: [], principal: 'jwt:sub'}\n", nil,
		"--store="+store, "--upstream=http://user:hunter2@service", "--wait=1500ms", "--max-body=100000", "--max-spool=1025KiB", "--deny-headers=X-A,X-B", "--save=409=released", "--remember=2h", "--fail-open")
	if err != nil {
		t.Fatal(err)
	}
	text, err := c.YAML()
	if err != nil || strings.Contains(string(text), "hunter2") {
		t.Fatalf("%s, %v", text, err)
	}
	again, _, err := load(t, strings.ReplaceAll(string(text), "xxxxx", "hunter2"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if again.Upstream = c.Upstream; !reflect.DeepEqual(again, c) { // one with a password is not shown
		t.Errorf("it is\n%+v and was\n%+v", again, c)
	}
	second, err := again.YAML()
	if err != nil || string(second) != string(text) || again.Store != store || again.Route.Wait != 1500*time.Millisecond || again.MaxSpool != 1025<<10 {
		t.Errorf("%v: %s\nand then\n%s", err, text, second)
	}
	c.Store = "user:hunter2@db/keys" // which begins with no scheme
	if text, err = c.YAML(); err != nil || strings.Contains(string(text), "hunter2") {
		t.Errorf("%s, %v", text, err)
	}
}

// Defaults that are the library's too are equal to them: what the reference says once is true of both.
func TestDefaultsAreWritten(t *testing.T) {
	c, _, err := load(t, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fields {
		if got := f.bind(c, &c.Route).String(); got != f.Default {
			t.Errorf("%s: the default %q is written %q", f.Key, f.Default, got)
		}
	}
	web := everonce.ForWeb()
	if c.Route.Retention != web.Retention || c.Route.Remember != web.Remember {
		t.Errorf("%v and %v, the library has %+v", c.Route.Retention, c.Route.Remember, web)
	}
}
