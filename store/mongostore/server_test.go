package mongostore_test

import (
	"context"
	"crypto/rand"
	"os"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/everonce/everonce/internal/testing/testserver"
)

const dbName = "everonce_test"

func serverURL(t testing.TB) string {
	t.Helper()
	return testserver.URL(t, "mongodb")
}

func noErr(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// connect makes a client of a test's own.
func connect(t testing.TB, url string, monitor *event.CommandMonitor) *mongo.Client {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(url).SetMonitor(monitor))
	noErr(t, err)
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) }) //nolint:errcheck // the test is over
	return client
}

// The clients that tests share, for the life of the process.
var clients = sync.OnceValues(func() ([2]*mongo.Client, error) {
	var two [2]*mongo.Client
	for i := range two {
		client, err := mongo.Connect(options.Client().ApplyURI(os.Getenv("EVERONCE_TEST_MONGODB_URL")).SetMonitor(&event.CommandMonitor{Started: refused}))
		if err != nil {
			return two, err
		}
		two[i] = client
	}
	return two, nil
})

func shared(t testing.TB, which int) *mongo.Database {
	t.Helper()
	serverURL(t)
	two, err := clients()
	noErr(t, err)
	return two[which].Database(dbName)
}

func database(t testing.TB) *mongo.Database      { t.Helper(); return shared(t, 0) }
func otherDatabase(t testing.TB) *mongo.Database { t.Helper(); return shared(t, 1) }

// newCollection returns the name of a collection that no other test uses, and which is dropped in the end.
func newCollection(t testing.TB) string {
	t.Helper()
	name := "t" + rand.Text()
	db := database(t)
	t.Cleanup(func() {
		if err := db.Collection(name).Drop(context.Background()); err != nil {
			t.Errorf("drop: %v", err)
		}
	})
	return name
}

// errOf is the error of a call whose result is empty.
func errOf[R any](_ R, err error) error { return err }
