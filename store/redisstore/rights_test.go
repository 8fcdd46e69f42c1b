package redisstore_test

import (
	"strings"
	"testing"

	"github.com/everonce/everonce/store/redisstore"
	"github.com/everonce/everonce/store/storetest"
)

// The rights of docs/reference/stores.md.
const rights = `
ACL SETUSER service on >secret resetkeys resetchannels ~everonce:* &everonce:* -@all \
  +evalsha +eval +get +set +del +append +exists +getrange +setrange +type +persist +pexpireat +hget +hset +hgetall +hlen \
  +publish +subscribe +unsubscribe +time +scan +info +config|get +ping +hello
`

// TestConformanceWithFewRights holds the store to the suite with no more rights than the documentation says that it needs: those of its own
// keys, on a server that others use too.
func TestConformanceWithFewRights(t *testing.T) {
	t.Parallel()
	p := startServer(t)
	command(t, p.client(t), strings.Fields(strings.ReplaceAll(rights, "\\\n", " "))...)
	opt := p.option()
	opt.Username, opt.Password = "service", "secret"
	storetest.Run(t, stores("everonce:", dial(t, opt), dial(t, opt), redisstore.Options{}), capabilities())
}
