package mongostore_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/testing/leaks"
	"github.com/everonce/everonce/store/mongostore"
)

// refusals collects what real servers of this protocol refuse, of all that the tests' shared clients have sent: the
// stand-in accepts some of it, and a test against it alone would be green.
var refusals struct {
	sync.Mutex
	seen map[string]bool
}

func refused(_ context.Context, e *event.CommandStartedEvent) {
	found := refusedIn(e.CommandName, e.Command)
	refusals.Lock()
	defer refusals.Unlock()
	for _, f := range found {
		refusals.seen[e.CommandName+": "+f] = true
	}
}

func refusedIn(name string, cmd bson.Raw) (found []string) {
	note := func(what string) { found = append(found, what) }
	check := func(filter, update bson.RawValue, upsert bool) {
		if upsert && strings.Contains(filter.String(), "$expr") {
			note("an upsert with $expr in its filter")
		}
		if update.Type == bson.TypeArray {
			note("a pipeline for an update")
		}
	}
	switch name {
	case "findAndModify":
		upsert, _ := cmd.Lookup("upsert").BooleanOK()
		check(cmd.Lookup("query"), cmd.Lookup("update"), upsert)
	case "update":
		updates, err := cmd.Lookup("updates").Array().Values()
		if err != nil {
			note(err.Error())
		}
		for _, u := range updates {
			upsert, _ := u.Document().Lookup("upsert").BooleanOK()
			check(u.Document().Lookup("q"), u.Document().Lookup("u"), upsert)
		}
	}
	return found
}

func TestMain(m *testing.M) {
	refusals.seen = map[string]bool{}
	code := leaks.M{M: m}.Run()
	for what := range refusals.seen {
		fmt.Fprintln(os.Stderr, "FAIL: sent, and refused by MongoDB:", what)
		code = 1
	}
	os.Exit(code)
}

// The check above finds what it is for.
func TestWhatMongoDBRefusesIsNoticed(t *testing.T) {
	t.Parallel()
	expr := bson.D{{Key: "$expr", Value: bson.D{{Key: "$lt", Value: bson.A{"$u", "$$NOW"}}}}}
	for want, cmd := range map[string]bson.D{
		"an upsert with $expr in its filter": {{Key: "query", Value: expr}, {Key: "update", Value: bson.D{}}, {Key: "upsert", Value: true}},
		"a pipeline for an update":           {{Key: "query", Value: bson.D{}}, {Key: "update", Value: bson.A{}}},
	} {
		raw, err := bson.Marshal(cmd)
		noErr(t, err)
		if found := refusedIn("findAndModify", raw); len(found) != 1 || found[0] != want {
			t.Errorf("noticed %q, want %q", found, want)
		}
	}
}

// Whatever the client is set to, writes are acknowledged by a majority, in the journal, and reads come from one, at the
// primary.
func TestConcernsAreTheStoresOwn(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	sent := map[string]bson.Raw{}
	client, err := mongo.Connect(options.Client().ApplyURI(serverURL(t)).SetWriteConcern(writeconcern.Unacknowledged()).SetReadPreference(readpref.SecondaryPreferred()).
		SetMonitor(&event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
			mu.Lock()
			defer mu.Unlock()
			sent[e.CommandName] = append(bson.Raw{}, e.Command...)
		}}))
	noErr(t, err)
	defer client.Disconnect(t.Context()) //nolint:errcheck // the test is over
	db := client.Database(dbName)
	s, err := mongostore.New(t.Context(), db, &mongostore.Options{Collection: newCollection(t)})
	noErr(t, err)
	r, err := everonce.NewReceiver(s, everonce.Reexecute, nil)
	noErr(t, err)
	for range 2 {
		_, err = everonce.Do(t.Context(), r, everonce.Key{Scope: "s", ID: "1"}, func(context.Context, *everonce.Attempt) (string, error) { return "", nil })
		noErr(t, err)
	}
	coll := db.Collection(newCollection(t))
	noErr(t, mongostore.EnsureIndex(t.Context(), coll, byEvent))
	_, err = inserter(t, coll).InsertOnce(t.Context(), eventOf("e1", "i1"))
	noErr(t, err)
	_, err = s.Purge(t.Context(), driver.PurgeRequest{Limit: 1})
	noErr(t, err)
	mu.Lock()
	defer mu.Unlock()
	for _, name := range []string{"findAndModify", "update", "insert"} {
		if w, _ := sent[name].Lookup("writeConcern", "w").StringValueOK(); w != "majority" {
			t.Errorf("%s: write concern %v", name, sent[name].Lookup("writeConcern"))
		}
		if j, _ := sent[name].Lookup("writeConcern", "j").BooleanOK(); !j {
			t.Errorf("%s: not in the journal", name)
		}
	}
	for _, name := range []string{"aggregate", "find"} {
		if level, _ := sent[name].Lookup("readConcern", "level").StringValueOK(); level != "majority" {
			t.Errorf("%s: read concern %q", name, level)
		}
		if mode, ok := sent[name].Lookup("$readPreference", "mode").StringValueOK(); ok && mode != "primary" && mode != "primaryPreferred" {
			t.Errorf("%s: read preference %s", name, mode)
		}
	}
}

// Health says that a single server is one.
func TestHealthNotes(t *testing.T) {
	t.Parallel()
	s, err := mongostore.New(t.Context(), database(t), &mongostore.Options{Collection: newCollection(t)})
	noErr(t, err)
	h, err := s.Health(t.Context(), driver.HealthRequest{})
	noErr(t, err)
	if !hasTransactions(t) && (len(h.Notes) != 1 || !strings.Contains(h.Notes[0], "no replica set")) {
		t.Errorf("notes of a single server: %q", h.Notes)
	}
	if h.Now.IsZero() || time.Since(h.Now).Abs() > 24*time.Hour {
		t.Errorf("the server's time is %v", h.Now)
	}
}
