package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// scope is the scope of the records that populate makes.
const scope everonce.Scope = "shop/payments"

// receipt is their result.
type receipt struct {
	Charge int `json:"charge"`
}

var errWork = errors.New("connection reset")

// populate makes one record of each kind, under IDs that say which.
func populate(store everonce.Store) error {
	ctx := context.Background()
	r, err := everonce.NewReceiver(store, everonce.Refuse, &everonce.Options{Owner: "payments:1", MaxResult: 64})
	if err != nil {
		return err
	}
	key := func(id string) everonce.Key { return everonce.Key{Scope: scope, ID: id} }
	ended := func(v receipt, err error) func(context.Context, *everonce.Attempt) (receipt, error) {
		return func(context.Context, *everonce.Attempt) (receipt, error) { return v, err }
	}
	_, done := everonce.Do(ctx, r, key("done"), ended(receipt{7}, nil), everonce.FingerprintOf("order-1"))
	_, other := everonce.Do(ctx, r, everonce.Key{Scope: "other", ID: "done"}, ended(receipt{8}, nil))
	_, rejected := everonce.Do(ctx, r, key("rejected"), ended(receipt{}, everonce.Permanent("card_declined", errors.New("no funds"), nil)))
	_, released := everonce.Do(ctx, r, key("released"), ended(receipt{}, everonce.NotDone(errWork)))
	_, abandoned := everonce.Do(ctx, r, key("abandoned"), ended(receipt{}, errWork))
	_, elided := everonce.Do(ctx, r, key("elided"), func(context.Context, *everonce.Attempt) (string, error) { return strings.Repeat("x", 100), nil })
	_, expired := everonce.Do(ctx, r, key("expired"), ended(receipt{9}, nil),
		everonce.WithLifetime(everonce.Lifetime{Retention: time.Millisecond, Remember: time.Hour}))
	_, gone := everonce.Do(ctx, r, key("gone"), ended(receipt{9}, nil),
		everonce.WithLifetime(everonce.Lifetime{Retention: time.Millisecond}))
	for what, check := range map[string]struct{ got, want error }{
		"done": {done, nil}, "other": {other, nil}, "elided": {elided, nil}, "expired": {expired, nil}, "gone": {gone, nil},
		"released": {released, errWork}, "abandoned": {abandoned, everonce.ErrOutcomeUnknown},
	} {
		if !errors.Is(check.got, check.want) {
			return fmt.Errorf("the record %q: %w", what, check.got)
		}
	}
	var failure *everonce.PermanentError
	if !errors.As(rejected, &failure) {
		return fmt.Errorf("the record %q: %w", "rejected", rejected)
	}
	return errors.Join(
		unknownMail(ctx, r, key("mail-unknown")),
		claim(ctx, store, key("live"), time.Hour),
		claim(ctx, store, key("lapsed"), time.Millisecond),
		untilPast(ctx, store, key("lapsed")), untilPast(ctx, store, key("expired")))
}

// unknownMail leaves an operation whose charge is done and whose mail is unknown and refused.
func unknownMail(ctx context.Context, r *everonce.Receiver, key everonce.Key) error {
	for range 2 {
		_, err := everonce.Do(ctx, r, key, func(ctx context.Context, a *everonce.Attempt) (receipt, error) {
			n, err := everonce.Step(ctx, a, "charge", func(context.Context) (int, error) { return 7, nil })
			if err != nil {
				return receipt{}, err
			}
			_, err = everonce.Step(ctx, a, "mail", func(context.Context) (string, error) { return "", errWork }, everonce.WithPolicy(everonce.Refuse))
			return receipt{n}, err
		}, everonce.EffectsInSteps(), everonce.WithPolicy(everonce.Reexecute))
		if err == nil {
			return errors.New("an unknown mail is no error")
		}
	}
	return nil
}

// claim leaves a claim of a process that says no more.
func claim(ctx context.Context, store everonce.Store, key everonce.Key, lease time.Duration) error {
	_, err := store.Claim(ctx, driver.ClaimRequest{
		ID: key.RecordID(), Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), Owner: "payments:2", Lease: lease,
	})
	return err
}

// untilPast waits until the time of a record is over by the store's clock: a lease, or a retention.
func untilPast(ctx context.Context, store everonce.Store, key everonce.Key) error {
	for {
		got, err := store.Get(ctx, driver.GetRequest{ID: key.RecordID()})
		if err != nil {
			return err
		}
		switch got.Record.StateAt(got.Now) {
		case driver.StateAbandoned, driver.StateTombstone:
			return nil
		}
	}
}

// deliverTo delivers an operation once more, and says what became of it.
func deliverTo(store everonce.Store, id string) string {
	r, err := everonce.NewReceiver(store, everonce.Refuse, nil)
	if err != nil {
		return err.Error()
	}
	res, err := everonce.Do(context.Background(), r, everonce.Key{Scope: scope, ID: id}, func(ctx context.Context, a *everonce.Attempt) (json.RawMessage, error) {
		mail, err := everonce.Step(ctx, a, "mail", func(context.Context) (string, error) { return "sent now", nil })
		return json.RawMessage(fmt.Sprintf("%q", mail)), err
	}, everonce.EffectsInSteps())
	if err != nil {
		return fmt.Sprintf("%v: %v", res.Outcome, err)
	}
	return fmt.Sprintf("%v: %s", res.Outcome, res.Value)
}

func openPool(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// dropSchema runs after the test, whose context is over.
func dropSchema(t *testing.T, url, schema string) {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), url)
	if err == nil {
		defer pool.Close()
		_, err = pool.Exec(context.Background(), "DROP SCHEMA IF EXISTS "+schema+" CASCADE")
	}
	if err != nil {
		t.Errorf("drop the schema of the test: %v", err)
	}
}
