package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/everonce/everonce/driver"
)

// TxStore is a [Store] whose records commit together with the application's items. The work adds them to its [Tx], and
// one TransactWriteItems writes them with the record:
//
//	tx.Put(types.Put{TableName: &orders, Item: item})
//
// A claim in a transaction is a read. It keeps no others out: if a key is delivered twice at once, the work of both may
// run, and the condition on the record lets one commit. The other one is run again, and finds the result. That is no
// second effect, because work in a transaction has effects through it only. For the same reason a process that dies in
// the work leaves nothing.
//
// A commit whose answer was lost is sent again, with the same token of DynamoDB's, by the next call of the key in the
// same process, so that it cannot take effect later than that call's answer. Until then, or for nine minutes, its items
// are kept in memory.
type TxStore struct {
	*Store
}

var _ driver.TxStore[*Tx] = (*TxStore)(nil)

// NewTx returns a store, as [New] does.
func NewTx(ctx context.Context, client *dynamodb.Client, opts *Options) (*TxStore, error) {
	s, err := New(ctx, client, opts)
	if err != nil {
		return nil, err
	}
	return &TxStore{s}, nil
}

// Begin implements [driver.TxStore] with one read, or, without a claim, with none.
func (s *TxStore) Begin(ctx context.Context, req driver.BeginRequest) (driver.TxHandle[*Tx], driver.ClaimResult, error) {
	h := &txHandle{tx: s.newTx(), own: true}
	if req.Timeout > 0 {
		h.until = time.Now().Add(req.Timeout)
	}
	if req.Claim == nil {
		return h, driver.ClaimResult{}, nil
	}
	res, err := h.claim(ctx, *req.Claim)
	if err != nil || res.Decision != driver.DecideClaimed {
		return nil, res, err
	}
	return h, res, nil
}

// Join implements [driver.TxStore]. The transaction must be of this store ([TxStore.NewTransaction]).
func (s *TxStore) Join(_ context.Context, tx *Tx) (driver.TxHandle[*Tx], error) {
	switch {
	case tx == nil:
		return nil, fmt.Errorf("dynamostore: join: %w: the transaction is nil", driver.ErrInvalidArgument)
	case tx.ended:
		return nil, fmt.Errorf("dynamostore: join: %w: the transaction has ended", driver.ErrInvalidArgument)
	case tx.s != s.Store:
		return nil, fmt.Errorf("dynamostore: join: %w", driver.ErrOtherStore)
	}
	return &txHandle{tx: tx}, nil
}

// ClassifyTx implements [driver.TxStore].
func (s *TxStore) ClassifyTx(err error) driver.TxErrorClass {
	switch {
	case errors.Is(err, errCommitLost):
		return driver.TxErrorCommitLost
	case errors.Is(err, errBusy):
		return driver.TxErrorRetry
	}
	return driver.TxErrorOther
}
