package redisstore_test

import (
	"strings"
	"testing"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/drivertest"
	"github.com/everonce/everonce/store/redisstore"
)

// The rights of docs/reference/stores.md.
const rights = `
ACL SETUSER service on >secret resetkeys resetchannels ~everonce:* &everonce:* -@all \
  +evalsha +eval +get +set +del +append +exists +getrange +setrange +type +persist +pexpireat +hget +hset +hgetall +hlen \
  +publish +psubscribe +time +scan +info +config|get +ping +hello
`

// TestConformanceWithFewRights runs the suite with no more rights than the documentation says that the store needs: the
// rights to its own keys, on a server that others use too.
func TestConformanceWithFewRights(t *testing.T) {
	t.Parallel()
	p := startServer(t)
	command(t, p.client(t), strings.Fields(strings.ReplaceAll(rights, "\\\n", " "))...)
	opt := p.option()
	opt.Username, opt.Password = "service", "secret"
	admin, own := p.client(t), stores("everonce:", dial(t, opt), dial(t, opt), redisstore.Options{})
	drivertest.Run(t, func(t testing.TB) drivertest.Harness { // each with its own prefix, where the service has one
		h := own(t)
		prefix, _, _ := strings.Cut(redisstore.KeyOf(h.Store.(*redisstore.Store), driver.RecordID{}), "{") //nolint:errcheck // it is one
		command(t, admin, "ACL", "SETUSER", "service", "&"+prefix+"*")
		return h
	}, variant())
}
