package config

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"
)

// FuzzFile reads any file as settings. A rejected file is an invalid one; an accepted file can be printed, and the
// printed file has the same settings.
func FuzzFile(f *testing.F) {
	for _, text := range []string{
		"", "---\n---\n", "---\na: 1\n---\n", "store: memory:\n", "wait: 1s\nlease: 2s\n", "routes:\n  \"POST /a\":\n    retention: 90d\n    save: {4xx: unknown}\n",
		"routes: &r {\"POST /\": *r}\n", "save: &s {5xx: released}\nroutes: {\"POST /\": {save: *s}}\n", "key-pattern: '[a-z]+'\n", "deny-headers: [a, [b]]\n",
		"wait: \n", "wait: !!null x\n", "max-body: 1MiB\n", "max-body: 9223372036854775807GiB\n", "fail-open: yes\n", "\xff", "a: &a [*a]\n", "? [x]\n: y\n", "<<: {wait: 1s}\n",
	} {
		f.Add([]byte(text))
	}
	path := filepath.Join(f.TempDir(), "proxy.yaml")
	f.Fuzz(func(t *testing.T, text []byte) {
		read := func(text []byte) (*Config, error) {
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
			fs := pflag.NewFlagSet("proxy", pflag.ContinueOnError)
			AddFlags(fs)
			c, _, err := Load(fs, nil, path)
			return c, err
		}
		c, err := read(text)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Fatalf("%v, want ErrInvalid", err)
			}
			return
		}
		printed, err := c.YAML()
		if err != nil {
			t.Fatalf("it is taken, and cannot be printed: %v", err)
		}
		again, err := read(printed)
		if err != nil {
			t.Fatalf("what was printed is no file of settings: %v\n%s", err, printed)
		}
		second, err := again.YAML()
		if err != nil || string(second) != string(printed) {
			t.Fatalf("%v: printed\n%s\nand then\n%s", err, printed, second)
		}
	})
}
