package mongostore_test

import (
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/testing/testserver"
	"github.com/everonce/everonce/store/mongostore"
)

// node is a server of a test's own, which it may kill.
type node struct {
	*testserver.Server
	t *testing.T
}

func (n *node) store() (*mongostore.Store, *mongo.Database) {
	n.t.Helper()
	db := connect(n.t, n.URL, nil).Database(dbName)
	s, err := mongostore.New(n.t.Context(), db, nil)
	noErr(n.t, err)
	return s, db
}

// TestKillOfTheServer: acknowledged writes exist after the server was killed and started again: claims, whose tokens
// still grow, and events.
func TestKillOfTheServer(t *testing.T) {
	t.Parallel()
	n := &node{testserver.Start(t, "mongodb"), t}
	ctx := t.Context()
	s, db := n.store()
	coll := db.Collection("event")
	noErr(t, mongostore.EnsureIndex(ctx, coll, byEvent))
	in := inserter(t, coll)
	const each = 50
	var held, done []driver.ClaimResult
	for i := range 2 * each {
		key := everonce.Key{Scope: "orders", ID: string(rune('a' + i))}
		res, err := s.Claim(ctx, driver.ClaimRequest{ID: key.RecordID(), Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), Lease: time.Hour, Lifetime: everonce.ForWeb()})
		noErr(t, err)
		if i%2 == 0 {
			held = append(held, res)
			continue
		}
		_, err = s.Complete(ctx, completed(res))
		noErr(t, err)
		done = append(done, res)
		_, err = in.InsertOnce(ctx, eventOf(key.ID, key.ID))
		noErr(t, err)
	}
	n.Restart()
	s, db = n.store()
	in = inserter(t, db.Collection("event"))
	for _, c := range done {
		res, err := s.Get(ctx, driver.GetRequest{ID: c.Record.ID})
		if err != nil || !res.Found || res.Record.State != driver.StateCompleted || string(res.Record.Result.Data) != "done" {
			t.Fatalf("a completed record after the restart: %v, %v, %v", res.Found, res.Record.State, err)
		}
		inserted, err := in.InsertOnce(ctx, eventOf(c.Record.Name, c.Record.Name))
		if err != nil || inserted {
			t.Fatalf("an event after the restart: inserted %v, %v", inserted, err)
		}
	}
	for _, c := range held {
		if _, err := s.Complete(ctx, completed(c)); err != nil {
			t.Fatalf("completing a claim from before the restart: %v", err)
		}
	}
	t.Logf("%d completed records, %d claims and %d events survived the kill", len(done), len(held), len(done))
}

func completed(c driver.ClaimResult) driver.CompleteRequest {
	return driver.CompleteRequest{
		ID: c.Record.ID, Token: c.Record.Token, Nonce: c.Record.Nonce, Lifetime: everonce.ForWeb(),
		Result: driver.SavedResult{Kind: driver.ResultValue, Codec: "raw", Data: []byte("done")},
	}
}
