package mongostore_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/mongostore"
)

// node is a server of a test's own, which it may kill.
type node struct {
	t   *testing.T
	dir string
	url string
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{t: t, dir: t.TempDir()}
	t.Cleanup(func() { n.services("down") })
	n.services("up")
	for line := range strings.Lines(n.services("env")) {
		if _, value, ok := strings.Cut(strings.TrimSpace(line), variable+"="); ok {
			n.url = strings.Trim(value, `'"`)
		}
	}
	if n.url == "" {
		t.Fatal("this test starts a server of its own: it needs Java and Maven on this machine (scripts/services up mongodb installs them on Debian, for root)")
	}
	return n
}

// services runs the repository's script on the node's own folder.
func (n *node) services(what string) string {
	n.t.Helper()
	cmd := exec.Command(filepath.Join("..", "..", "scripts", "services"), what, "mongodb") //nolint:gosec // the arguments are this file's
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "EVERONCE_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "EVERONCE_SERVICES_DIR="+n.dir, "EVERONCE_NO_DOCKER=1")
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		n.t.Fatalf("%v: %v: %s", cmd.Args, err, said.String())
	}
	return string(out)
}

func (n *node) store() (*mongostore.Store, *mongo.Database) {
	n.t.Helper()
	db := connect(n.t, n.url, nil).Database(dbName)
	s, err := mongostore.New(n.t.Context(), db, nil)
	noErr(n.t, err)
	return s, db
}

// TestKillOfTheServer: what was acknowledged is there after the server was killed and started again; so are claims, whose tokens still count,
// and events.
func TestKillOfTheServer(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	ctx := t.Context()
	s, db := n.store()
	coll := db.Collection("event")
	noErr(t, mongostore.EnsureIndex(ctx, coll, byEvent))
	const each = 50
	var held, done []everonce.ClaimResult
	for i := range 2 * each {
		key := everonce.Key{Scope: "orders", ID: string(rune('a' + i))}
		res, err := s.Claim(ctx, everonce.ClaimRequest{ID: key.RecordID(), Scope: key.Scope, Name: key.ID, Nonce: everonce.NewNonce(), Lease: time.Hour, Lifetime: everonce.ForWeb()})
		noErr(t, err)
		if i%2 == 0 {
			held = append(held, res)
			continue
		}
		_, err = s.Complete(ctx, completed(res))
		noErr(t, err)
		done = append(done, res)
		_, err = mongostore.InsertOnce(ctx, coll, eventOf(key.ID, key.ID), byEvent)
		noErr(t, err)
	}
	n.services("restart")
	s, db = n.store()
	for _, c := range done {
		res, err := s.Get(ctx, everonce.GetRequest{ID: c.Record.ID})
		if err != nil || !res.Found || res.Record.State != everonce.StateCompleted || string(res.Record.Result.Data) != "done" {
			t.Fatalf("a completed record after the restart: %v, %v, %v", res.Found, res.Record.State, err)
		}
		inserted, err := mongostore.InsertOnce(ctx, db.Collection("event"), eventOf(c.Record.Name, c.Record.Name), byEvent)
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

func completed(c everonce.ClaimResult) everonce.CompleteRequest {
	return everonce.CompleteRequest{
		ID: c.Record.ID, Token: c.Record.Token, Nonce: c.Record.Nonce, Lifetime: everonce.ForWeb(),
		Result: everonce.SavedResult{Kind: everonce.ResultValue, Codec: "raw", Data: []byte("done")},
	}
}
