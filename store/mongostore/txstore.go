package mongostore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/transition"
)

// ErrNoTransactions: the server has no transactions, because it is neither a member of a replica set nor a router of
// a sharded cluster.
var ErrNoTransactions = errors.New("mongostore: the server has no transactions")

// TxStore is a [Store] whose records commit together with the application's documents. The application writes through
// the session:
//
//	coll.InsertOne(mongo.NewSessionContext(ctx, tx), document)
//
// MongoDB has no savepoints, and the first error ends a transaction. This has two consequences for everonce.DoTx.
// Any error of the work dooms the caller's transaction ([driver.ErrTxDoomed]), even a permanent failure. And if two
// callers run the same new operation at once, each in its own transaction, the second fails when it completes, and
// its work must be rolled back. everonce.Transact is not affected: its claim is a write, which the server allows to
// one transaction only.
//
// A session can run several transactions, and does not report which of them it is in. So DoTx refuses a session for
// good after a transaction in it was doomed: run the whole transaction again in a new session. Within
// mongo.Session.WithTransaction do that after it has returned, because it runs its callback again in the same
// session. everonce.TxReceiver.InTx uses a new session for each run.
//
// Work must not end the transaction of the session that it was given (AbortTransaction, CommitTransaction): that is
// not supported, and its effects may commit without the record. The commit of a session that is in no transaction
// fails.
//
// A guarded claim (everonce.Do) of a key that an open transaction has written waits in the server until that
// transaction has ended. The server ends a transaction after a minute, or after its transactionLifetimeLimitSeconds,
// whatever the receiver's TxTimeout is.
type TxStore struct {
	*Store
}

var _ driver.TxStore[*mongo.Session] = (*TxStore)(nil)

// NewTx returns a store, as [New] does. It returns [ErrNoTransactions] for a server without transactions.
func NewTx(ctx context.Context, db *mongo.Database, opts *Options) (*TxStore, error) {
	s, err := New(ctx, db, opts)
	if err != nil {
		return nil, err
	}
	server, err := s.server(alone(ctx))
	if err != nil {
		return nil, wrapError(ctx, "open", err)
	}
	if !server.hasTransactions() {
		return nil, ErrNoTransactions
	}
	return &TxStore{s}, nil
}

// txOptions are a transaction's: what the store's own writes have.
func txOptions() *options.TransactionOptionsBuilder {
	journal := true
	return options.Transaction().SetReadConcern(readconcern.Snapshot()).SetReadPreference(readpref.Primary()).
		SetWriteConcern(&writeconcern.WriteConcern{W: writeconcern.Majority().W, Journal: &journal})
}

// begins is how often a transaction is begun whose claim conflicts with another one that has just ended.
const begins = 3

// Begin implements [driver.TxStore].
func (s *TxStore) Begin(ctx context.Context, req driver.BeginRequest) (driver.TxHandle[*mongo.Session], driver.ClaimResult, error) {
	until := untilOf(req.Timeout)
	for try := 1; ; try++ {
		h, res, err := s.begin(ctx, req.Claim, until)
		switch {
		case err == nil && h == nil:
			return nil, res, nil
		case err == nil:
			return h, res, nil
		case !conflicts(err):
			return nil, driver.ClaimResult{}, wrapError(ctx, "begin", err)
		case try == begins: // another transaction has written the record, and is open
			return nil, driver.ClaimResult{Decision: driver.DecideInProgress}, nil
		}
		if err := beforeRetry(ctx, try); err != nil {
			return nil, driver.ClaimResult{}, wrapError(ctx, "begin", err)
		}
	}
}

// untilOf is when a transaction's time is over: never without a bound.
func untilOf(timeout time.Duration) (until time.Time) {
	if timeout > 0 {
		until = time.Now().Add(timeout)
	}
	return until
}

func (s *TxStore) begin(ctx context.Context, claim *driver.ClaimRequest, until time.Time) (*txHandle, driver.ClaimResult, error) {
	session, err := s.coll.Database().Client().StartSession()
	if err != nil {
		return nil, driver.ClaimResult{}, err
	}
	h := newHandle(s.Store, session)
	h.own, h.until = true, until
	if err := session.StartTransaction(txOptions()); err != nil {
		h.end()
		return nil, driver.ClaimResult{}, err
	}
	if claim == nil {
		return h, driver.ClaimResult{}, nil
	}
	res, err := h.claim(ctx, claim, true)
	if err != nil || res.Decision != driver.DecideClaimed {
		h.abort()
		return nil, res, err
	}
	return h, res, nil
}

// Join implements [driver.TxStore]. The session must have an open transaction.
func (s *TxStore) Join(_ context.Context, tx *mongo.Session) (driver.TxHandle[*mongo.Session], error) {
	switch {
	case tx == nil:
		return nil, fmt.Errorf("mongostore: join: %w: the session is nil", driver.ErrInvalidArgument)
	case tx.Client() != s.coll.Database().Client():
		return nil, fmt.Errorf("mongostore: join: %w: the session belongs to another client", driver.ErrInvalidArgument)
	case !tx.TransactionRunning():
		return nil, fmt.Errorf("mongostore: join: %w: the session has no open transaction", driver.ErrInvalidArgument)
	}
	return newHandle(s.Store, tx), nil
}

// Labels and codes of the errors of transactions.
const (
	labelTransient = "TransientTransactionError"
	labelUnknown   = "UnknownTransactionCommitResult"
	codeNoTx       = 251
)

// ClassifyTx implements [driver.TxStore].
func (s *TxStore) ClassifyTx(err error) driver.TxErrorClass {
	switch {
	case errors.Is(err, errCommitLost), labelled(err, labelUnknown):
		return driver.TxErrorCommitLost
	case errors.Is(err, driver.ErrTxTooLong):
		return driver.TxErrorOther
	case labelled(err, labelTransient), hasCode(err, codeWriteConflict), hasCode(err, codeNoTx):
		return driver.TxErrorRetry
	}
	return driver.TxErrorOther
}

func labelled(err error, label string) bool {
	le, ok := errors.AsType[mongo.LabeledError](err)
	return ok && le.HasErrorLabel(label)
}

// conflicts reports whether another transaction was first.
func conflicts(err error) bool { return hasCode(err, codeWriteConflict) || taken(err) }

// write writes a record in a transaction: over the one that was read in it, or as a new one if there was no record.
func (h *txHandle) write(ctx context.Context, doc *document, next *driver.Record) error {
	if doc == nil {
		_, err := h.s.coll.InsertOne(ctx, documentOf(next, 1))
		return err
	}
	res, err := h.s.coll.ReplaceOne(ctx, bson.D{{Key: "_id", Value: doc.ID}, {Key: "rev", Value: doc.Rev}}, documentOf(next, doc.Rev+1))
	if err == nil && res.MatchedCount != 1 {
		err = driver.ErrConflict
	}
	return err
}

// change reads a record in the transaction, decides, and writes.
func (h *txHandle) change(ctx context.Context, id *driver.RecordID, decide decision) error {
	doc, rec, now, err := h.read(ctx, id)
	if err != nil {
		return err
	}
	next, err := decide(rec, now)
	if err != nil || next == nil {
		return err
	}
	return h.write(ctx, doc, next)
}

func (h *txHandle) read(ctx context.Context, id *driver.RecordID) (doc *document, rec *driver.Record, now time.Time, err error) {
	if doc, now, err = h.s.read(ctx, id); doc == nil || err != nil {
		return nil, nil, now, err
	}
	rec, err = doc.record()
	return doc, rec, now, err
}

// claim claims in the transaction. If writes is false, because the transaction is the caller's and a conflict would end
// it, it keeps the record for the completion: a batch has many.
func (h *txHandle) claim(ctx context.Context, req *driver.ClaimRequest, writes bool) (res driver.ClaimResult, err error) {
	err = h.within(ctx, func(ctx context.Context) error {
		asked := *req
		asked.Lifetime = wholeLife(asked.Lifetime)
		doc, rec, now, err := h.read(ctx, &req.ID)
		if err != nil {
			return err
		}
		var next *driver.Record
		if next, res, err = transition.Claim(rec, asked, now); err != nil || next == nil {
			return err
		}
		if !writes {
			if h.claimed == nil {
				h.claimed = make(map[driver.RecordID]*driver.Record)
			}
			h.claimed[req.ID] = next
			return nil
		}
		return h.write(ctx, doc, next)
	})
	return res, err
}
