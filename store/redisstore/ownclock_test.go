package redisstore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce/driver/drivertest"
)

// This process's clock is years behind the server's, and stands still: what a lease, and a lifetime, is measured by is
// the server's (rule 2).
func TestTimeIsTheServers(t *testing.T) {
	url := serverURL(t)
	synctest.Test(t, func(t *testing.T) {
		client := newClient(t, url)
		s := newStore(t, client, nil)
		server := func() time.Time {
			t.Helper()
			parts, err := command(t, client, "TIME").AsIntSlice()
			noErr(t, err)
			return time.UnixMicro(parts[0]*1_000_000 + parts[1])
		}
		drivertest.ServersClock(t, s, server)
	})
}
