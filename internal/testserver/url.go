// Package testserver has the servers that tests talk to: those that all share, and one of a test's own, which it may
// ill-treat.
package testserver

import (
	"os"
	"strings"
	"testing"
)

// URL returns the address of the shared server, by its name in scripts/services.d. If it is missing the test fails:
// without a server it proves nothing.
func URL(t testing.TB, name string) string {
	t.Helper()
	variable := "EVERONCE_TEST_" + strings.ToUpper(name) + "_URL"
	url := os.Getenv(variable)
	if url == "" {
		t.Fatalf(`there is no %s to test with: run scripts/services up %[1]s, then eval "$(scripts/services env)", or set %s`, name, variable)
	}
	return url
}
