package mongostore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/drivertest"
	"github.com/everonce/everonce/store/mongostore"
)

// hasTransactions says whether the server does; NewTx is held to it.
func hasTransactions(t testing.TB) bool {
	t.Helper()
	var is struct {
		Set    string `bson:"setName"`
		Router string `bson:"msg"`
	}
	noErr(t, database(t).RunCommand(t.Context(), bson.D{{Key: "isMaster", Value: 1}}).Decode(&is))
	return is.Set != "" || is.Router == "isdbgrid"
}

func newTxStore(t testing.TB, db *mongo.Database, collection string) *mongostore.TxStore {
	t.Helper()
	s, err := mongostore.NewTx(t.Context(), db, &mongostore.Options{Collection: collection})
	noErr(t, err)
	return s
}

// TestConformanceTx holds transactions to the suite, where the server has them.
func TestConformanceTx(t *testing.T) {
	if !hasTransactions(t) {
		t.Skip("transactions of mongostore.TxStore: the server has none; EVERONCE_TEST_MONGODB_URL has to name a replica set")
	}
	caps := capabilities()
	caps.NoSavepoints = true
	drivertest.RunTxWithBugs(t, func(t testing.TB) drivertest.TxHarness[*mongo.Session] {
		db, name := database(t), newCollection(t)
		ledger := db.Collection(newCollection(t))
		noErr(t, db.CreateCollection(t.Context(), ledger.Name()))
		apply := func(ctx context.Context, tx *mongo.Session, doc bson.D) error {
			_, err := ledger.InsertOne(mongo.NewSessionContext(ctx, tx), doc)
			return err
		}
		return drivertest.TxHarness[*mongo.Session]{
			Harness: drivertest.Harness{Store: newTxStore(t, db, name), Peer: newTxStore(t, db, name)},
			Apply: func(ctx context.Context, tx *mongo.Session, name string) error {
				return apply(ctx, tx, bson.D{{Key: "name", Value: name}})
			},
			Count: func(ctx context.Context, name string) (int, error) {
				n, err := ledger.CountDocuments(ctx, bson.D{{Key: "name", Value: name}})
				return int(n), err
			},
			Begin: func(context.Context) (drivertest.CallerTx[*mongo.Session], error) {
				session, err := db.Client().StartSession()
				if err == nil {
					err = session.StartTransaction()
				}
				return drivertest.CallerTx[*mongo.Session]{Tx: session, Commit: session.CommitTransaction, Rollback: session.AbortTransaction}, err
			},
			Spoil: func(ctx context.Context, tx *mongo.Session) error {
				id := bson.D{{Key: "_id", Value: bson.NewObjectID()}}
				return errors.Join(apply(ctx, tx, id), apply(ctx, tx, id))
			},
		}
	}, caps)
}

// A transaction of the caller's is doomed by any error of the work.
func TestDoTxAnErrorDoomsTheTransaction(t *testing.T) {
	if !hasTransactions(t) {
		t.Skip("DoTx on mongostore.TxStore: the server has no transactions; EVERONCE_TEST_MONGODB_URL has to name a replica set")
	}
	s := newTxStore(t, database(t), newCollection(t))
	r, err := everonce.NewTxReceiver(s, nil)
	noErr(t, err)
	begin := func() *mongo.Session {
		session, err := database(t).Client().StartSession()
		noErr(t, err)
		t.Cleanup(func() { session.EndSession(context.Background()) })
		noErr(t, session.StartTransaction())
		return session
	}
	do := func(session *mongo.Session, end error) error {
		_, err := everonce.DoTx(t.Context(), session, r, everonce.Key{Scope: "orders", ID: "7"}, func(context.Context) (string, error) { return "", end })
		return err
	}
	session := begin()
	if err := do(session, errors.New("no")); !errors.Is(err, driver.ErrTxDoomed) {
		t.Errorf("%v, want ErrTxDoomed", err)
	}
	noErr(t, session.AbortTransaction(t.Context()))
	// The session says nothing of its being in another transaction.
	noErr(t, session.StartTransaction())
	if err := do(session, nil); !errors.Is(err, driver.ErrTxDoomed) {
		t.Errorf("another transaction of the session: %v, want ErrTxDoomed", err)
	}
	noErr(t, session.AbortTransaction(t.Context()))
	again := begin()
	noErr(t, do(again, nil))
	noErr(t, again.CommitTransaction(t.Context()))
}

// A server without transactions is refused at the start, and not at the first commit.
func TestNewTxRefusesAServerWithoutTransactions(t *testing.T) {
	t.Parallel()
	_, err := mongostore.NewTx(t.Context(), database(t), &mongostore.Options{Collection: newCollection(t)})
	if has := hasTransactions(t); has != (err == nil) || !has && !errors.Is(err, mongostore.ErrNoTransactions) {
		t.Errorf("the server has transactions: %v; NewTx: %v", has, err)
	}
}

// A session without a transaction is refused: a write through it would commit alone.
func TestJoinNeedsAnOpenTransaction(t *testing.T) {
	t.Parallel()
	s, err := mongostore.New(t.Context(), database(t), &mongostore.Options{Collection: newCollection(t)})
	noErr(t, err)
	txs := mongostore.Over(s)
	session, err := database(t).Client().StartSession()
	noErr(t, err)
	defer session.EndSession(t.Context())
	other, err := otherDatabase(t).Client().StartSession()
	noErr(t, err)
	defer other.EndSession(t.Context())
	noErr(t, other.StartTransaction())
	for what, tx := range map[string]*mongo.Session{"nil": nil, "no transaction": session, "another client": other} {
		if _, err := txs.Join(t.Context(), tx); !errors.Is(err, driver.ErrInvalidArgument) {
			t.Errorf("%s: %v, want ErrInvalidArgument", what, err)
		}
	}
	noErr(t, session.StartTransaction())
	h, err := txs.Join(t.Context(), session)
	noErr(t, err)
	for what, err := range map[string]error{"Commit": errOf(h.Commit(t.Context(), driver.CommitRequest{})), "Rollback": h.Rollback(t.Context())} {
		if !errors.Is(err, driver.ErrInvalidArgument) {
			t.Errorf("%s of the caller's transaction: %v", what, err)
		}
	}
	if h.Savepoint(t.Context(), "x") != nil || h.RollbackTo(t.Context(), "x") == nil || h.ReleaseSavepoint(t.Context(), "x") != nil {
		t.Error("a savepoint is made and forgotten, and never rolled back to")
	}
}

func TestClassifyTx(t *testing.T) {
	t.Parallel()
	txs := mongostore.Over(nil)
	for what, c := range map[string]struct {
		err  error
		want driver.TxErrorClass
	}{
		"a lost commit":       {mongo.CommandError{Labels: []string{"UnknownTransactionCommitResult"}}, driver.TxErrorCommitLost},
		"lost, and transient": {mongo.CommandError{Labels: []string{"TransientTransactionError", "UnknownTransactionCommitResult"}}, driver.TxErrorCommitLost},
		"transient":           {mongo.CommandError{Labels: []string{"TransientTransactionError"}}, driver.TxErrorRetry},
		"a write conflict":    {mongo.CommandError{Code: 112}, driver.TxErrorRetry},
		"ended by the server": {mongo.CommandError{Code: 251}, driver.TxErrorRetry},
		"too long":            {driver.ErrTxTooLong, driver.TxErrorOther},
		"a duplicate":         {mongo.CommandError{Code: 11000}, driver.TxErrorOther},
		"the application's":   {errors.New("no"), driver.TxErrorOther},
	} {
		if got := txs.ClassifyTx(c.err); got != c.want {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
	}
}

// The statements of a transaction, one after the other, without one: what they decide does not depend on it.
func TestTxStatements(t *testing.T) {
	t.Parallel()
	s, err := mongostore.New(t.Context(), database(t), &mongostore.Options{Collection: newCollection(t)})
	noErr(t, err)
	ctx := t.Context()
	claim := func(id string) driver.ClaimRequest {
		key := everonce.Key{Scope: "orders", ID: id}
		return driver.ClaimRequest{ID: key.RecordID(), Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), Lifetime: everonce.ForWeb()}
	}
	done := func(req driver.ClaimRequest, token driver.Token) driver.CompleteRequest {
		return driver.CompleteRequest{ID: req.ID, Token: token, Nonce: req.Nonce, Lifetime: req.Lifetime, Result: driver.SavedResult{Kind: driver.ResultValue, Codec: "raw", Data: []byte("done")}}
	}
	isDone := func(req driver.ClaimRequest) {
		t.Helper()
		res, err := s.Get(ctx, driver.GetRequest{ID: req.ID})
		noErr(t, err)
		if !res.Found || res.Record.State != driver.StateCompleted || string(res.Record.Result.Data) != "done" {
			t.Errorf("%s: %v %v", req.Name, res.Found, res.Record.State)
		}
	}

	// Claimed by Begin, completed with the commit; then a conflict for the second one.
	first := claim("1")
	h := mongostore.BareHandle(s)
	res, err := mongostore.BeginClaim(ctx, h, first)
	noErr(t, err)
	complete := done(first, res.Record.Token)
	noErr(t, mongostore.Last(ctx, h, driver.CommitRequest{Complete: &complete}))
	isDone(first)
	other := done(claim("1"), res.Record.Token)
	other.ID = first.ID
	for what, err := range map[string]error{"Complete": errOf(h.Complete(ctx, other)), "a commit with it": mongostore.Last(ctx, h, driver.CommitRequest{Complete: &other})} {
		if !errors.Is(err, driver.ErrConflict) {
			t.Errorf("%s, by another: %v, want ErrConflict", what, err)
		}
	}

	// Joined: the claim writes nothing, the completion all; of two the second conflicts.
	joined := claim("2")
	h1, h2 := mongostore.BareHandle(s), mongostore.BareHandle(s)
	again := joined
	again.Nonce = driver.NewNonce()
	r1, err := h1.Claim(ctx, joined)
	noErr(t, err)
	r2, err := h2.Claim(ctx, again)
	noErr(t, err)
	if got, err := h1.Get(ctx, driver.GetRequest{ID: joined.ID}); err != nil || got.Found {
		t.Errorf("a joined claim has written: %v, %v", got.Found, err)
	}
	noErr(t, errOf(h1.Complete(ctx, done(joined, r1.Record.Token))))
	isDone(joined)
	if _, err := h2.Complete(ctx, done(again, r2.Record.Token)); !errors.Is(err, driver.ErrConflict) {
		t.Errorf("Complete of the second: %v, want ErrConflict", err)
	}

	// A batch claims all before it completes any.
	batch := mongostore.BareHandle(s)
	var all []driver.CompleteRequest
	for _, id := range []string{"5", "6", "7"} {
		req := claim(id)
		res, err := batch.Claim(ctx, req)
		noErr(t, err)
		all = append(all, done(req, res.Record.Token))
	}
	for i := range all {
		noErr(t, errOf(batch.Complete(ctx, all[i])))
	}
	for _, id := range []string{"5", "6", "7"} {
		isDone(claim(id))
	}

	// Recorded without a claim, once.
	late := claim("3")
	noErr(t, mongostore.Last(ctx, h, driver.CommitRequest{Record: &late, Complete: new(done(late, 0))}))
	isDone(late)
	second, over := claim("3"), done(late, 0)
	for what, err := range map[string]error{"Record": errOf(h.Record(ctx, driver.RecordRequest{Claim: second, Complete: over})), "a commit with it": mongostore.Last(ctx, h, driver.CommitRequest{Record: &second, Complete: &over})} {
		if !errors.Is(err, driver.ErrConflict) {
			t.Errorf("%s, over a record: %v, want ErrConflict", what, err)
		}
	}

	// A step rides on a commit once, under the parent's token.
	parent := claim("4")
	parent.Lease = time.Minute
	held, err := s.Claim(ctx, parent)
	noErr(t, err)
	step := driver.SaveStepRequest{
		ID: parent.ID, Token: held.Record.Token, Nonce: parent.Nonce, Lease: time.Minute, Lifetime: parent.Lifetime,
		Step: driver.StepRecord{Name: "charge", State: driver.StepDone, Attempt: 1, Result: driver.SavedResult{Kind: driver.ResultElided}},
	}
	noErr(t, errOf(h.Renew(ctx, driver.RenewRequest{ID: parent.ID, Token: held.Record.Token, Nonce: parent.Nonce, Lease: time.Minute, Lifetime: parent.Lifetime})))
	noErr(t, mongostore.Last(ctx, h, driver.CommitRequest{SaveStep: &step}))
	if err := mongostore.Last(ctx, h, driver.CommitRequest{SaveStep: &step}); !errors.Is(err, driver.ErrLeaseLost) {
		t.Errorf("the same step again: %v, want ErrLeaseLost", err)
	}
	refused := step
	refused.Step = driver.StepRecord{Name: "refused", State: driver.StepNotDone, Attempt: 1}
	_, err = s.SaveStep(ctx, refused)
	noErr(t, err)
	refused.Step.State, refused.Step.Result = driver.StepDone, step.Step.Result
	if err := mongostore.Last(ctx, h, driver.CommitRequest{SaveStep: &refused}); !errors.Is(err, driver.ErrLeaseLost) {
		t.Errorf("a step that this attempt has ended as not done: %v, want ErrLeaseLost", err)
	}
	refused.Step.Attempt = 2
	noErr(t, mongostore.Last(ctx, h, driver.CommitRequest{SaveStep: &refused}))
	step.Step.Name, step.Token = "mail", step.Token+1
	if err := mongostore.Last(ctx, h, driver.CommitRequest{SaveStep: &step}); !errors.Is(err, driver.ErrLeaseLost) {
		t.Errorf("a step under another token: %v, want ErrLeaseLost", err)
	}

	if _, err := mongostore.Within(s, 0).Get(ctx, driver.GetRequest{ID: first.ID}); err != nil {
		t.Errorf("without a timeout: %v", err)
	}
	if _, err := mongostore.Within(s, time.Nanosecond).Get(ctx, driver.GetRequest{ID: first.ID}); !errors.Is(err, driver.ErrTxTooLong) {
		t.Errorf("after the timeout: %v, want ErrTxTooLong", err)
	}
}
