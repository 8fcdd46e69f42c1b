package redisstore_test

import (
	"os"
	"strings"
	"testing"

	"github.com/everonce/everonce/store/redisstore"
	"github.com/everonce/everonce/store/storetest"
)

// rights returns the words of the documentation that give a user of a server the rights that a service needs.
func rights(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../docs/reference/stores.md")
	noErr(t, err)
	_, rest, _ := strings.Cut(string(text), "\nACL SETUSER ")
	line, _, ok := strings.Cut(rest, "\n```")
	if !ok {
		t.Fatal("the documentation has no ACL SETUSER")
	}
	return append([]string{"ACL", "SETUSER"}, strings.Fields(strings.ReplaceAll(line, "\\\n", " "))...)
}

// TestConformanceWithFewRights holds the store to the suite with no more rights than the documentation says that it needs: those of its own
// keys, on a server that others use too.
func TestConformanceWithFewRights(t *testing.T) {
	t.Parallel()
	p := startServer(t)
	words := rights(t)
	command(t, p.client(t), words...)
	opt := p.option()
	opt.Username, opt.Password = words[2], "secret"
	storetest.Run(t, stores("everonce:", dial(t, opt), dial(t, opt), redisstore.Options{}), capabilities())
}
