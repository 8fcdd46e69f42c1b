package sketches

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/everonce/everonce"
)

// BatchStore is an optional power of a store: many keys in one round trip, each with a result of its
// own. What holds for Claim, Complete, Release and Renew holds for each item; the items of one call are
// not atomic together. Items are handed over in the order of their IDs, no ID twice, so that two
// batches never lock in different orders. The error of the call itself means that nobody knows about
// any item: the call is repeated with the same nonces.
type BatchStore interface {
	everonce.Store
	ClaimBatch(ctx context.Context, req []everonce.ClaimRequest) ([]BatchItem[everonce.ClaimResult], error)
	CompleteBatch(ctx context.Context, req []everonce.CompleteRequest) ([]BatchItem[everonce.CompleteResult], error)
	ReleaseBatch(ctx context.Context, req []everonce.ReleaseRequest) ([]BatchItem[everonce.ReleaseResult], error)
	RenewBatch(ctx context.Context, req []everonce.RenewRequest) ([]BatchItem[everonce.RenewResult], error)
}

// BatchItem is the answer to one item.
type BatchItem[R any] struct {
	Result R
	Err    error
}

// Batch is one batch of messages on its way through a BatchStore.
type Batch struct {
	Store BatchStore
	items []batchItem
}

type batchItem struct {
	msg   Message
	claim everonce.ClaimRequest
	got   BatchItem[everonce.ClaimResult]
	err   error // of the work
}

// Open builds the claims: sorted, and a key that is twice in the batch claimed once.
func (b *Batch) Open(c Consumer, id func(everonce.Key) everonce.RecordID, owner string, msgs []Message) {
	for _, m := range msgs {
		key := c.key(m)
		b.items = append(b.items, batchItem{msg: m, claim: everonce.ClaimRequest{
			ID: id(key), Scope: key.Scope, Name: key.ID, Nonce: everonce.NewNonce(), Owner: owner,
			Lease: 30 * time.Second, Fingerprint: everonce.FingerprintOf(m.Body), Lifetime: everonce.ForQueue(),
		}})
	}
	slices.SortStableFunc(b.items, func(x, y batchItem) int { return bytes.Compare(x.claim.ID[:], y.claim.ID[:]) })
	b.items = slices.CompactFunc(b.items, func(x, y batchItem) bool { return x.claim.ID == y.claim.ID })
}

// Run claims all, works on what is ours, and ends all: two round trips for the whole batch.
func (b *Batch) Run(ctx context.Context, work func(context.Context, []Message) []error) error {
	claims := make([]everonce.ClaimRequest, len(b.items))
	for i, it := range b.items {
		claims[i] = it.claim
	}
	got, err := b.Store.ClaimBatch(ctx, claims)
	if err != nil {
		return err
	}
	if len(got) != len(claims) {
		return fmt.Errorf("%w: %d answers to %d claims", everonce.ErrStore, len(got), len(claims))
	}
	var ours []*batchItem
	var msgs []Message
	for i := range b.items {
		b.items[i].got = got[i]
		if got[i].Err == nil && got[i].Result.Decision == everonce.DecideClaimed {
			ours, msgs = append(ours, &b.items[i]), append(msgs, b.items[i].msg)
		}
	}
	errs := work(ctx, msgs)
	var done []everonce.CompleteRequest
	var back []everonce.ReleaseRequest
	for i, it := range ours {
		rec := it.got.Result.Record
		if it.err = errs[i]; it.err == nil {
			done = append(done, everonce.CompleteRequest{
				ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce,
				Result: everonce.SavedResult{Kind: everonce.ResultValue, Codec: "raw"}, Lifetime: it.claim.Lifetime,
			})
			continue
		}
		back = append(back, everonce.ReleaseRequest{
			ID: rec.ID, Scope: it.claim.Scope, Name: it.claim.Name, Token: rec.Token, Nonce: rec.Nonce,
			State: everonce.StateReleased, ErrorClass: "error", Lifetime: it.claim.Lifetime,
		})
	}
	if _, err := b.Store.CompleteBatch(ctx, done); err != nil {
		return err
	}
	_, err = b.Store.ReleaseBatch(ctx, back)
	return err
}

// BatchTx handles many messages in one transaction of ours: one commit for all, each with its own
// record and savepoint. What fails is taken back alone and redelivered; the rest commits.
func BatchTx[Tx any](ctx context.Context, c Consumer, recv *everonce.TxReceiver[Tx], msgs []Message, handle func(context.Context, Tx, Message) error) ([]Disposition, error) {
	out := make([]Disposition, len(msgs))
	err := recv.InTx(ctx, func(ctx context.Context, tx Tx) error {
		for i, m := range msgs {
			res, err := everonce.DoTx(ctx, tx, recv, c.key(m), func(ctx context.Context) (struct{}, error) {
				return struct{}{}, handle(ctx, tx, m)
			}, everonce.FingerprintOf(m.Body), everonce.WithLifetime(everonce.ForQueue()))
			if res.Outcome == everonce.StoreFailed || errors.Is(err, everonce.ErrTxDoomed) {
				return err // the transaction is gone: InTx runs it again where that helps
			}
			out[i], _ = c.dispose(res.Outcome, res.Attempt > 0, err)
		}
		return nil
	})
	if err != nil {
		for i := range out {
			out[i] = Redeliver
		}
	}
	return out, err
}
