package mongostore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/drivertest"
	"github.com/everonce/everonce/store/mongostore"
)

// This process's clock is years behind the server's, and stands still: what a lease, and a lifetime, is measured by is
// the server's (rule 2).
func TestTimeIsTheServers(t *testing.T) {
	url, name := serverURL(t), newCollection(t)
	synctest.Test(t, func(t *testing.T) {
		client := connect(t, url, nil)
		s, err := mongostore.New(t.Context(), client.Database(dbName), &mongostore.Options{Collection: name})
		noErr(t, err)
		server := func() time.Time {
			t.Helper()
			var told struct {
				Time time.Time `bson:"localTime"`
			}
			noErr(t, client.Database(dbName).RunCommand(t.Context(), bson.D{{Key: "isMaster", Value: 1}}).Decode(&told))
			return told.Time
		}
		drivertest.ServersClock(t, s, server)
		purged, err := s.Purge(t.Context(), driver.PurgeRequest{})
		noErr(t, err)
		if purged.Results != 1 || purged.Records != 0 { // of the one whose result is over
			t.Errorf("purged: %+v, want one result", purged)
		}
	})
}
