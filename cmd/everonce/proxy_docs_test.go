package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/everonce/everonce/cmd/everonce/internal/proxy/config"
	"github.com/everonce/everonce/httponce/client"
)

func readPage(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// blocks returns the code blocks of a page, in a folder of docs, in that language.
func blocks(t *testing.T, dir, page, language string) (found []string) {
	t.Helper()
	for _, m := range regexp.MustCompile("(?s)\n```"+language+"\n(.*?\n)```\n").FindAllStringSubmatch(readPage(t, dir+"/"+page), -1) {
		found = append(found, m[1])
	}
	return found
}

// The reference has every setting, with its variable, its default, where it may stand, and its help text; and no other.
func TestProxyReference(t *testing.T) {
	_, page, _ := strings.Cut(readPage(t, "reference/proxy.md"), "\n## Settings\n")
	page, _, _ = strings.Cut(page, "\n## ")
	rows := map[string]bool{}
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "| `") {
			rows[strings.TrimSpace(line)] = true
		}
	}
	for _, f := range config.Fields() {
		row := referenceRow(f)
		if !rows[row] {
			t.Errorf("docs/reference/proxy.md has no row\n%s", row)
		}
		delete(rows, row)
	}
	for row := range rows {
		t.Errorf("docs/reference/proxy.md has a row of no setting:\n%s", row)
	}
}

func referenceRow(f config.Field) string {
	def, where := "", "all"
	if f.Default != "" {
		def = "`" + f.Default + "`"
	}
	if f.Route {
		where = "route"
	}
	return fmt.Sprintf("| `%s` | `%s` | %s | %s | %s |", f.Key, f.Env(), def, where, f.Usage)
}

// Every configuration that a page shows is one.
func TestProxyPagesYAML(t *testing.T) {
	shown := slices.Concat(blocks(t, "how-to", "proxy-in-front-of-any-service.md", "yaml"), blocks(t, "reference", "proxy.md", "yaml"))
	for _, block := range shown {
		loadFile(t, "the docs", block)
	}
	help, ok := strings.CutPrefix(proxyLong[strings.Index(proxyLong, "\n  listen: "):], "\n")
	if !ok {
		t.Fatal("--help shows no file")
	}
	help, _, _ = strings.Cut(help, "\n\nSIGTERM")
	loadFile(t, "--help", help)
	if len(shown) < 2 {
		t.Errorf("found %d blocks only: the test looks in the wrong place", len(shown))
	}
}

func loadFile(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "proxy.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	fs := pflag.NewFlagSet("proxy", pflag.ContinueOnError)
	config.AddFlags(fs)
	c, _, err := config.Load(fs, nil, file)
	if err != nil || len(c.Routes) == 0 {
		t.Errorf("%s: %v, %d routes:\n%s", name, err, len(c.Routes), text)
	}
}

// The how-to's service in Python, its proxy and its requests do what the page says.
func TestHowToProxy(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal("the how-to's service is a script of Python: install python3")
	}
	dir, front, back := t.TempDir(), freeAddr(t), freeAddr(t)
	_, port, _ := strings.Cut(back, ":")
	there := strings.NewReplacer("127.0.0.1:8080", front, "127.0.0.1:9000", back, "9000", port)

	service := exec.Command(python, "-c", there.Replace(blocks(t, "how-to", "proxy-in-front-of-any-service.md", "python")[0]))
	shell := blocks(t, "how-to", "proxy-in-front-of-any-service.md", "sh")
	words := strings.Fields(there.Replace(shell[0]))
	proxy := exec.Command(words[0], append(words[1:], "--admin", "none")...)
	for _, cmd := range []*exec.Cmd{service, proxy} {
		cmd.Dir, cmd.Env = dir, append(os.Environ(), noRace)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			cmd.Process.Kill()
			cmd.Wait()
		})
	}
	request := regexp.MustCompile(`^curl -i (\S+) -H '(\S+): (\S+)' -d (\S+)\n$`).FindStringSubmatch(there.Replace(shell[1]))
	if request == nil {
		t.Fatalf("the page's request is %q", shell[1])
	}
	for i, marker := range []string{"", "true", "true"} {
		res, body := insist(t, request[1], request[4], request[2], request[3])
		if res.StatusCode != http.StatusCreated || body != "paid" || res.Header.Get("Idempotent-Replayed") != marker {
			t.Errorf("request %d: %d %q %v", i, res.StatusCode, body, res.Header)
		}
	}
	insist(t, request[1], "", request[2], "without-a-body") // a simple server needs its length
	insist(t, request[1], "amount=2", request[2], "payment-8")
	if text, err := os.ReadFile(filepath.Join(dir, "ledger")); err != nil || string(text) != "amount=1\n\namount=2\n" {
		t.Errorf("the ledger has %q, %v", text, err)
	}
}

// insist sends a request until the proxy, and the service behind it, are up.
func insist(t *testing.T, url, body, header, value string) (*http.Response, string) {
	t.Helper()
	tr, err := client.NewTransport(nil, &client.Options{MaxAttempts: 10_000, RawKey: true, KeyHeader: header, Backoff: 5 * time.Millisecond, MaxBackoff: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(client.WithKey(t.Context(), value), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	res, err := (&http.Client{Transport: tr}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(text)
}

// The unit of the page starts the proxy of the page: its command, the variables that it sets, and a stop that waits for as long as drain does.
func TestUnitOfTheHowTo(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("proxy.yaml", blocks(t, "how-to", "proxy-in-front-of-any-service.md", "yaml")[0])
	write("identity", strings.Repeat("x", 32))

	unit := map[string]string{}
	for line := range strings.Lines(blocks(t, "how-to", "proxy-in-front-of-any-service.md", "ini")[0]) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(key, "#") {
			unit[key] = value
		}
	}
	there := strings.NewReplacer("%d", dir, "/etc/everonce", dir)
	words := strings.Fields(there.Replace(unit["ExecStart"]))
	if words[0] != "/usr/local/bin/everonce" {
		t.Fatalf("it starts %q", words)
	}
	if from := there.Replace(unit["LoadCredential"]); from != "identity:"+filepath.Join(dir, "identity") {
		t.Errorf("the credential is %q", from)
	}
	start := exec.Command("everonce", append(words[1:], "--print-config")...)
	start.Env = append(os.Environ(), noRace, there.Replace(unit["Environment"]))
	out, err := start.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "identity-secret-file: "+filepath.Join(dir, "identity")) {
		t.Errorf("%v: %s", err, out)
	}

	for _, f := range config.Fields() {
		if f.Key != "drain-timeout" {
			continue
		}
		drain, err := time.ParseDuration(f.Default)
		stop, err2 := time.ParseDuration(unit["TimeoutStopSec"])
		if err != nil || err2 != nil || stop <= drain {
			t.Errorf("systemd kills it after %v, and drain is %v (%v, %v)", stop, drain, err, err2)
		}
	}
	if want := fmt.Sprint(exitUsage); unit["RestartPreventExitStatus"] != want {
		t.Errorf("it is not started again after %q, want %s", unit["RestartPreventExitStatus"], want)
	}
}

// The client of the page sends the same request until it has an answer, and no other answer than those that say "later" sends it again.
func TestClientOfTheHowTo(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal("the how-to's client is a script of Python: install python3")
	}
	script := blocks(t, "how-to", "proxy-in-front-of-any-service.md", "python")[1] + `
import sys
try:
    print(*post(sys.argv[1], b"amount=1", "payment-7"))
except TimeoutError:
    print("no answer")
`
	cut, later := func(w http.ResponseWriter) { panic(http.ErrAbortHandler) }, func(status int) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(status)
		}
	}
	half := func(w http.ResponseWriter) {
		w.Header().Set("Content-Length", "9")
		io.WriteString(w, "half")
		cut(w)
	}
	is := func(status int) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.WriteHeader(status)
			io.WriteString(w, "answered")
		}
	}
	for name, c := range map[string]struct {
		answers []func(http.ResponseWriter)
		want    string
	}{
		"later, in all ways":      {[]func(http.ResponseWriter){cut, half, later(409), is(503), later(429), is(201)}, "201 b'answered'"},
		"unknown":                 {[]func(http.ResponseWriter){cut, is(409)}, "409 b'answered'"},
		"another request":         {[]func(http.ResponseWriter){is(422)}, "422 b'answered'"},
		"an error of the service": {[]func(http.ResponseWriter){is(500)}, "500 b'answered'"},
		"never":                   {slices.Repeat([]func(http.ResponseWriter){later(503)}, 10), "no answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sent := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if r.Method != http.MethodPost || r.Header.Get("Idempotency-Key") != "payment-7" || string(body) != "amount=1" || err != nil || sent == len(c.answers) {
					t.Errorf("request %d: %s %v %q, %v", sent, r.Method, r.Header, body, err)
					return
				}
				sent++
				c.answers[sent-1](w)
			}))
			cmd := exec.CommandContext(t.Context(), python, "-c", script, server.URL)
			cmd.Env = append(os.Environ(), "NO_PROXY=*")
			out, err := cmd.CombinedOutput()
			server.Close()
			if got := strings.TrimSpace(string(out)); err != nil || got != c.want || sent != len(c.answers) {
				t.Errorf("after %d of %d requests: %s (%v), want %s", sent, len(c.answers), got, err, c.want)
			}
		})
	}
}
