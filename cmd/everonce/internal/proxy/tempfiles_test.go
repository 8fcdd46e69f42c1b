package proxy

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// If temporary files cannot be written, the start warns, before a client sends a body that is too large for memory.
// Such a body is rejected, and nothing is done.
func TestTempFilesThatCannotBeWritten(t *testing.T) {
	for dir, want := range map[string]int{t.TempDir(): http.StatusCreated, filepath.Join(t.TempDir(), "missing"): http.StatusServiceUnavailable} {
		t.Setenv("TMPDIR", dir)
		var service counting
		p := start(t, service.ServeHTTP)
		if told, raw := p.logged(t, "cannot write temporary files"); (len(told) == 1) != (want != http.StatusCreated) {
			t.Errorf("%s: the log says %s", dir, raw)
		}
		if res, body := send(t, "POST", p.url+"/", strings.Repeat("x", 1<<20), "Idempotency-Key", "small"); res.StatusCode != http.StatusCreated {
			t.Errorf("%s: a body that fits into memory: %d %s", dir, res.StatusCode, body)
		}
		if res, body := send(t, "POST", p.url+"/", strings.Repeat("x", 1<<20+1), "Idempotency-Key", "large"); res.StatusCode != want {
			t.Errorf("%s: %d %s, want %d", dir, res.StatusCode, body, want)
		}
		if n := service.count(); (n == 2) != (want == http.StatusCreated) {
			t.Errorf("%s: the service was called %d times", dir, n)
		}
	}
}
