package dynamostore_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/dynamostore"
)

const lease = time.Minute

var life = driver.Lifetime{Retention: time.Hour, Remember: time.Hour}

func claimOf(id string) driver.ClaimRequest {
	key := everonce.Key{Scope: "tenant/charge", ID: id}
	return driver.ClaimRequest{ID: key.RecordID(), Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), Owner: "test", Lease: lease, Lifetime: life}
}

func claimed(t testing.TB, s driver.Store, id string) driver.Record {
	t.Helper()
	res, err := s.Claim(t.Context(), claimOf(id))
	if err != nil || res.Decision != driver.DecideClaimed {
		t.Fatalf("the claim says %v, %v", res.Decision, err)
	}
	return res.Record
}

// call is a call of a store's.
type call struct {
	name string
	do   func(ctx context.Context, s *dynamostore.Store, rec driver.Record) error
}

// writes are the calls of an attempt, in their order. Each may be repeated.
var writes = []call{
	{"Renew", func(ctx context.Context, s *dynamostore.Store, rec driver.Record) error {
		_, err := s.Renew(ctx, driver.RenewRequest{ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Lease: lease, Lifetime: life})
		return err
	}},
	{"SaveStep", func(ctx context.Context, s *dynamostore.Store, rec driver.Record) error {
		step := driver.StepRecord{Name: "mail", State: driver.StepDone, Attempt: rec.Attempt, Result: driver.SavedResult{Kind: driver.ResultElided}}
		_, err := s.SaveStep(ctx, driver.SaveStepRequest{ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Lease: lease, Lifetime: life, Step: step})
		return err
	}},
	{"Complete", func(ctx context.Context, s *dynamostore.Store, rec driver.Record) error {
		_, err := s.Complete(ctx, driver.CompleteRequest{
			ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Lifetime: life,
			Result: driver.SavedResult{Kind: driver.ResultValue, Codec: "raw", Data: []byte("v")},
		})
		return err
	}},
}

var release = call{"Release", func(ctx context.Context, s *dynamostore.Store, rec driver.Record) error {
	res, err := s.Release(ctx, driver.ReleaseRequest{ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, State: driver.StateReleased, Lifetime: life})
	if err == nil && res.Superseded {
		err = errors.New("superseded")
	}
	return err
}}

// others are the calls that do not belong to an attempt.
var others = []call{
	{"Claim", func(ctx context.Context, s *dynamostore.Store, rec driver.Record) error {
		_, err := s.Claim(ctx, claimOf(rec.Name))
		return err
	}},
	{"Claim to settle", func(ctx context.Context, s *dynamostore.Store, rec driver.Record) error {
		req := claimOf(rec.Name)
		req.Take = driver.TakeToSettle
		_, err := s.Claim(ctx, req)
		return err
	}},
	{"Release by nonce", func(ctx context.Context, s *dynamostore.Store, _ driver.Record) error {
		req := claimOf("another")
		_, err := s.Release(ctx, driver.ReleaseRequest{ID: req.ID, Scope: req.Scope, Name: req.Name, Nonce: req.Nonce, State: driver.StateReleased, Lifetime: life})
		return err
	}},
	{"Get", func(ctx context.Context, s *dynamostore.Store, rec driver.Record) error {
		_, err := s.Get(ctx, driver.GetRequest{ID: rec.ID})
		return err
	}},
	{"List", func(ctx context.Context, s *dynamostore.Store, _ driver.Record) error {
		_, err := s.List(ctx, driver.ListRequest{})
		return err
	}},
	{"List of a scope", func(ctx context.Context, s *dynamostore.Store, rec driver.Record) error {
		_, err := s.List(ctx, driver.ListRequest{Scope: rec.Scope})
		return err
	}},
	{"Purge", func(ctx context.Context, s *dynamostore.Store, _ driver.Record) error {
		_, err := s.Purge(ctx, driver.PurgeRequest{})
		return err
	}},
	{"DeleteScope", func(ctx context.Context, s *dynamostore.Store, rec driver.Record) error {
		_, err := s.DeleteScope(ctx, driver.DeleteScopeRequest{Scope: rec.Scope})
		return err
	}},
	{"Health", func(ctx context.Context, s *dynamostore.Store, _ driver.Record) error {
		_, err := s.Health(ctx, driver.HealthRequest{})
		return err
	}},
	{"CheckWrite", func(ctx context.Context, s *dynamostore.Store, _ driver.Record) error {
		return errOf(s.CheckWrite(ctx, driver.CheckWriteRequest{}))
	}},
	{"KeepIdentity", func(ctx context.Context, s *dynamostore.Store, _ driver.Record) error {
		return errOf(s.KeepIdentity(ctx, driver.KeepIdentityRequest{Check: [32]byte{1}}))
	}},
	{"ReadIdentity", func(ctx context.Context, s *dynamostore.Store, _ driver.Record) error {
		_, err := s.ReadIdentity(ctx, driver.ReadIdentityRequest{})
		return err
	}},
}

// isFailure checks that a call failed, and that its failure looks like no answer (rule 7).
func isFailure(t testing.TB, what string, err error) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error", what)
	}
	for _, refusal := range []error{
		driver.ErrAttemptEnded, driver.ErrLeaseLost, driver.ErrConflict, driver.ErrTooLarge, driver.ErrNewerRecord,
		driver.ErrCorruptRecord, driver.ErrIdentity, driver.ErrSchema, driver.ErrTxTooLong,
	} {
		if errors.Is(err, refusal) {
			t.Errorf("%s: %v, which is an answer", what, err)
		}
	}
}

func overLine(t testing.TB, tries int) (*line, *dynamostore.TxStore) {
	t.Helper()
	l := new(line)
	s, err := dynamostore.NewTx(t.Context(), l.over(t, tries), &dynamostore.Options{Table: newTable(t), ClockSkew: -1})
	noErr(t, err)
	return l, s
}

// A guarded operation is two calls, and a replay is one.
func TestCalls(t *testing.T) {
	t.Parallel()
	l, s := overLine(t, 1)
	r, err := everonce.NewReceiver(s, everonce.Refuse, nil)
	noErr(t, err)
	do := func() {
		_, err := everonce.Do(t.Context(), r, everonce.Key{Scope: "orders", ID: "7"}, func(context.Context, *everonce.Attempt) (string, error) { return "v", nil })
		noErr(t, err)
	}
	tx, err := everonce.NewTxReceiver(s, nil)
	noErr(t, err)
	transact := func() {
		_, err := everonce.Transact(t.Context(), tx, everonce.Key{Scope: "orders", ID: "8"}, func(context.Context, *dynamostore.Tx) (string, error) { return "v", nil })
		noErr(t, err)
	}
	for _, r := range []interface{ Ready(context.Context) error }{r, tx} {
		noErr(t, r.Ready(t.Context()))
	}
	transact()
	for what, c := range map[string]struct {
		do   func()
		want []string
	}{"a new key": {do, []string{"PutItem", "UpdateItem"}}, "a transaction of a known key": {transact, []string{"GetItem"}}} {
		l.spoil()
		if c.do(); !slices.Equal(l.requests(), c.want) {
			t.Errorf("%s: %v, want %v", what, l.requests(), c.want)
		}
	}
	l.spoil()
	if do(); !slices.Equal(l.requests(), []string{"PutItem"}) {
		t.Errorf("a replay: %v, want one conditional write", l.requests())
	}
}

// The answer of every write is lost, or the write itself: the store says that it does not know, and the same call again
// is accepted and leaves what one call leaves (rule 4). The same holds where the SDK retries, and its second try finds
// what the first has written.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]spoil{"before": before, "after": after} {
		for tries, again := range map[int]string{1: "the caller again", 3: "the SDK again"} {
			t.Run(name+", "+again, func(t *testing.T) {
				t.Parallel()
				l, s := overLine(t, tries)
				lost := func(what string, call func() error) {
					t.Helper()
					l.spoil(how)
					err := call()
					if tries > 1 {
						if err != nil {
							t.Errorf("%s: %v, want that the SDK's second try is accepted", what, err)
						}
						return
					}
					isFailure(t, what, err)
					if err := call(); err != nil {
						t.Errorf("%s, repeated: %v", what, err)
					}
				}
				claim := func(take driver.TakeOver) (rec driver.Record) {
					req := claimOf("7")
					req.Take = take
					lost("Claim", func() error {
						res, err := s.Claim(t.Context(), req)
						if err == nil && res.Decision != driver.DecideClaimed {
							t.Errorf("the repeated claim is %v", res.Decision)
						}
						rec = res.Record
						return err
					})
					return rec
				}
				rec := claim(driver.TakeNone)
				lost(release.name, func() error { return release.do(t.Context(), s.Store, rec) })
				rec = claim(driver.TakeNone)
				if rec.Attempt != 2 {
					t.Errorf("the claim of the released key is attempt %d, want 2", rec.Attempt)
				}
				for _, c := range writes {
					lost(c.name, func() error { return c.do(t.Context(), s.Store, rec) })
				}
				got, err := s.Get(t.Context(), driver.GetRequest{ID: rec.ID})
				if err != nil || got.Record.State != driver.StateCompleted || got.Record.Attempt != 2 || len(got.Record.Steps) != 1 {
					t.Errorf("the record is %v, attempt %d with %d steps, %v", got.Record.State, got.Record.Attempt, len(got.Record.Steps), err)
				}
			})
		}
	}
}

// A request that the server refuses for its rate, or does not answer, is a failure, whichever of a call's requests it
// is: never "not a duplicate", absent, or done (rule 7).
func TestThrottlingIsNoAnswer(t *testing.T) {
	t.Parallel()
	l, s := overLine(t, 1)
	rec := claimed(t, s, "7")
	for _, code := range []string{"ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded", "InternalServerError", ""} {
		how := throttled(code)
		if code == "" {
			how = before
		}
		for _, c := range slices.Concat(others, writes[:2], []call{release}) {
			l.spoil(how)
			isFailure(t, c.name+", "+code, c.do(t.Context(), s.Store, rec))
		}
	}
	l.spoil()
	if got, err := s.Get(t.Context(), driver.GetRequest{ID: rec.ID}); err != nil || got.Record.State != driver.StateClaimed || len(got.Record.Steps) != 0 {
		t.Errorf("the record is %v, %v; want it unchanged", got.Record.State, err)
	}
}

// A renewal that comes after a later one does not shorten the lease.
func TestALateRenewalShortensNoLease(t *testing.T) {
	t.Parallel()
	l, table := new(line), newTable(t)
	s, err := dynamostore.New(t.Context(), l.over(t, 1), &dynamostore.Options{Table: table, ClockSkew: -1})
	noErr(t, err)
	rec := claimed(t, s, "late")
	renew, until := writes[0].do, func() time.Time {
		res, err := s.Get(t.Context(), driver.GetRequest{ID: rec.ID})
		noErr(t, err)
		return res.Record.LeaseUntil
	}
	var late func() (*http.Response, error)
	l.spoil(func(send func() (*http.Response, error)) (*http.Response, error) { late = send; return nil, errLine })
	isFailure(t, "Renew", renew(t.Context(), s, rec))
	noErr(t, renew(t.Context(), s, rec))
	before := until()
	res, err := late()
	noErr(t, err)
	noErr(t, res.Body.Close())
	if after := until(); after.Before(before) {
		t.Errorf("the lease was until %v, and is until %v", before, after)
	}
}

// A write that conflicts with a transaction in its commit is made after it.
func TestAWriteWaitsForACommit(t *testing.T) {
	t.Parallel()
	l, s := overLine(t, 1)
	meets := throttled("TransactionConflictException")
	l.spoil(meets, meets)
	rec := claimed(t, s, "7")
	for _, c := range writes {
		l.spoil(meets)
		if c.name == "SaveStep" {
			l.spoil(nil, meets)
		}
		noErr(t, c.do(t.Context(), s.Store, rec))
	}
	l.spoil(meets, meets, meets, meets, meets, meets, meets, meets, meets, meets)
	isFailure(t, "a commit without an end", errOf(s.Claim(t.Context(), claimOf("8"))))
}
