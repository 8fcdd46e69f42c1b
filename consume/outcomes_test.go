package consume_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// faultyStore answers some calls with errors.
type faultyStore struct {
	*memstore.Store
	claim, complete error
}

func (s *faultyStore) Claim(ctx context.Context, r driver.ClaimRequest) (driver.ClaimResult, error) {
	if s.claim != nil {
		return driver.ClaimResult{}, s.claim
	}
	return s.Store.Claim(ctx, r)
}

func (s *faultyStore) Complete(ctx context.Context, r driver.CompleteRequest) (driver.CompleteResult, error) {
	if s.complete != nil {
		return driver.CompleteResult{}, s.complete
	}
	return s.Store.Complete(ctx, r)
}

// rig is a consumer with its store, clock and log.
type rig struct {
	t     *testing.T
	store *faultyStore
	recv  *everonce.Receiver
	c     *consume.Consumer
}

func rigged(t *testing.T, handle func(context.Context, *consume.Message, order) error, change func(*consume.Spec[order])) *rig {
	t.Helper()
	r := &rig{t: t, store: &faultyStore{Store: memstore.New(nil)}}
	var err error
	if r.recv, err = everonce.NewReceiver(r.store, everonce.Refuse, nil); err != nil {
		t.Fatal(err)
	}
	spec := consume.Spec[order]{Consumer: "billing", Key: consume.ProducerID(), Handle: handle}
	if change != nil {
		change(&spec)
	}
	if r.c, err = consume.New(r.recv, spec); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) wants(m *consume.Message, o everonce.Outcome, d consume.Disposition) consume.Decision {
	r.t.Helper()
	v := r.c.Handle(r.t.Context(), m)
	if v.Outcome != o || v.Disposition != d {
		r.t.Errorf("%v, %v (%v); want %v, %v", v.Outcome, v.Disposition, v.Err, o, d)
	}
	if d == consume.Ack && o != everonce.Rejected && v.Err != nil { // nothing went wrong, whatever the core calls what it has kept
		r.t.Errorf("%v was acknowledged, with the error %v", o, v.Err)
	}
	return v
}

// wantsDeadLetter wants a dead letter with that reason and all required fields.
func (r *rig) wantsDeadLetter(m *consume.Message, o everonce.Outcome, why consume.Reason) consume.Decision {
	r.t.Helper()
	v := r.wants(m, o, consume.SetAside)
	l := v.Death
	if l.Reason != why || l.Detail == "" || l.Consumer != "billing" || l.Source != m.Source || l.KeyHash != v.KeyHash ||
		l.Attempts != m.Retries+1 || !l.First.Equal(m.First) || l.Last.IsZero() {
		r.t.Errorf("the dead letter is %+v, want reason %q", l, why)
	}
	return v
}

func done(context.Context, *consume.Message, order) error { return nil }

func fails(context.Context, *consume.Message, order) error {
	return everonce.NotDone(errors.New("the bank is closed"))
}

func first() *consume.Message {
	return &consume.Message{ID: "m-1", Source: "orders", Body: []byte(`{"ID":"7"}`), First: time.Unix(1_700_000_000, 0)}
}

func TestExecutedAndReplayedAreAcknowledged(t *testing.T) {
	r := rigged(t, done, nil)
	r.wants(first(), everonce.Executed, consume.Ack)
	r.wants(first(), everonce.Replayed, consume.Ack)
}

func TestExpiredIsAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rigged(t, done, nil)
		r.wants(first(), everonce.Executed, consume.Ack)
		time.Sleep(8 * 24 * time.Hour)
		r.wants(first(), everonce.Expired, consume.Ack)
	})
}

func TestElidedIsAcknowledged(t *testing.T) {
	r := rigged(t, func(context.Context, *consume.Message, order) error { return errors.New("the line went dead") }, nil)
	r.wantsDeadLetter(first(), everonce.Unknown, consume.Unknown)
	r.settle(everonce.Settlement{Verdict: everonce.SettleDone})
	r.wants(first(), everonce.Elided, consume.Ack)
}

func (r *rig) settle(s everonce.Settlement) {
	r.t.Helper()
	key, err := r.c.KeyOf(first())
	if err != nil {
		r.t.Fatal(err)
	}
	if err := r.recv.Settle(r.t.Context(), key, s); err != nil {
		r.t.Fatal(err)
	}
}

func refuses(context.Context, *consume.Message, order) error {
	return everonce.Permanent("no_such_account", errors.New("there is no such account"), nil)
}

func TestRejectedIsADeadLetterAtEveryDelivery(t *testing.T) {
	r := rigged(t, refuses, nil)
	for range 3 { // the first may have been lost between the record and the broker
		r.wantsDeadLetter(first(), everonce.Rejected, consume.Rejected)
	}
}

// A rejected message was not done, also after the details of the rejection have expired.
func TestARefusalThatHasExpiredIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rigged(t, refuses, nil)
		now := r.wantsDeadLetter(first(), everonce.Rejected, consume.Rejected)
		time.Sleep(8 * 24 * time.Hour)
		late := r.wantsDeadLetter(first(), everonce.Rejected, consume.Rejected)
		if !strings.HasPrefix(now.Death.Detail, late.Death.Detail) {
			t.Errorf("the late dead letter says %q, which is not the code of %q", late.Death.Detail, now.Death.Detail)
		}
		r = rigged(t, refuses, func(s *consume.Spec[order]) { s.DropRejected = true })
		r.wants(first(), everonce.Rejected, consume.Ack)
		time.Sleep(8 * 24 * time.Hour)
		r.wants(first(), everonce.Rejected, consume.Ack)
	})
}

func TestRejectedIsOnlyAcknowledgedUnderDropRejected(t *testing.T) {
	r := rigged(t, refuses, func(s *consume.Spec[order]) { s.DropRejected = true })
	for range 2 {
		v := r.wants(first(), everonce.Rejected, consume.Ack)
		if e, ok := errors.AsType[*everonce.PermanentError](v.Err); !ok || e.Code != "no_such_account" { // for Observe: there is no letter that has it
			t.Errorf("the decision has the error %v", v.Err)
		}
	}
}

func TestInProgressElsewhereComesLaterWithoutCounting(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	r := rigged(t, func(context.Context, *consume.Message, order) error { close(begun); <-end; return nil }, nil)
	handled := make(chan consume.Decision)
	go func() { handled <- r.c.Handle(t.Context(), first()) }()
	<-begun
	m := first()
	m.Retries = 1000 // the budget is used up, and does not matter
	if v := r.wants(m, everonce.InProgress, consume.Defer); v.After <= 0 {
		t.Errorf("it comes again after %v", v.After)
	}
	close(end)
	if v := <-handled; v.Disposition != consume.Ack {
		t.Errorf("the first: %v, %v", v.Disposition, v.Err)
	}
}

func TestLeaseLostComesLaterWithoutCounting(t *testing.T) {
	var r *rig
	r = rigged(t, func(context.Context, *consume.Message, order) error {
		r.settle(everonce.Settlement{Verdict: everonce.SettleNotDone, Force: true})
		return nil
	}, nil)
	m := first()
	m.Retries = 1000
	if v := r.wants(m, everonce.LeaseLost, consume.Defer); v.After != time.Second { // no time was given
		t.Errorf("it comes again after %v", v.After)
	}
}

// A message that is in progress elsewhere comes again when its receiver says.
func TestInProgressComesAgainWhenTheReceiverSays(t *testing.T) {
	store := memstore.New(nil)
	recv, err := everonce.NewReceiver(store, everonce.Refuse, &everonce.Options{RetryAfter: 7 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	c, err := consume.New(recv, consume.Spec[order]{Consumer: "billing", Key: consume.ProducerID(), Handle: done})
	if err != nil {
		t.Fatal(err)
	}
	claimFirst(t, store)
	if v := c.Handle(t.Context(), first()); v.Outcome != everonce.InProgress || v.After != 7*time.Second {
		t.Errorf("%v, again after %v (%v)", v.Outcome, v.After, v.Err)
	}
}

// claimFirst begins an attempt at the first message, as another process does.
func claimFirst(t *testing.T, store everonce.Store) driver.ClaimRequest {
	t.Helper()
	key := everonce.Key{Scope: everonce.ScopeOf("billing"), ID: first().ID}
	req := driver.ClaimRequest{ID: key.RecordID(), Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), Lease: time.Minute, Lifetime: everonce.ForQueue()}
	if _, err := store.Claim(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	return req
}

func TestFailedIsRetriedUpToTheLimitThenADeadLetter(t *testing.T) {
	r := rigged(t, fails, func(s *consume.Spec[order]) {
		s.Retry = consume.RetryPolicy{Limit: 5, Min: time.Second, Max: 4 * time.Second}
	})
	m := first()
	for _, most := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 4 * time.Second, 4 * time.Second} {
		if v := r.wants(m, everonce.Failed, consume.Retry); v.After < most/2 || v.After > most {
			t.Errorf("retry %d after %v, want from %v to %v", m.Retries+1, v.After, most/2, most)
		}
		m.Retries++
	}
	r.wantsDeadLetter(m, everonce.Failed, consume.Exhausted)
}

// The error of another store in a handler is a failure of its message, which uses up a retry: the consumer's store
// works.
func TestAStoreErrorOfTheHandlerUsesUpARetry(t *testing.T) {
	err := everonce.NotDone(fmt.Errorf("%w: the mail's", everonce.ErrStore))
	r := rigged(t, func(context.Context, *consume.Message, order) error { return err }, nil)
	r.wants(first(), everonce.Failed, consume.Retry)
	c := booking(t, newLedger(), func(s *txSpec) {
		s.Handle = func(context.Context, *ledgerTx, *consume.Message, order) error { return err }
	})
	both(t, c, consume.Retry, everonce.Failed)
}

// If all effects are in steps, an error before any step is a failure, and nothing is unknown.
func TestEffectsInStepsAreDeclared(t *testing.T) {
	lineWentDead := func(context.Context, *consume.Message, order) error { return errors.New("the line went dead") }
	r := rigged(t, lineWentDead, func(s *consume.Spec[order]) { s.EffectsInSteps = true })
	r.wants(first(), everonce.Failed, consume.Retry)
}

func TestNegativeLimitNeverRetries(t *testing.T) {
	r := rigged(t, fails, func(s *consume.Spec[order]) { s.Retry.Limit = -1 })
	r.wantsDeadLetter(first(), everonce.Failed, consume.Exhausted)
}

func TestMismatchIsADeadLetter(t *testing.T) {
	r := rigged(t, done, nil)
	r.wants(first(), everonce.Executed, consume.Ack)
	other := first()
	other.Body = []byte(`{"ID":"8"}`)
	r.wantsDeadLetter(other, everonce.Mismatch, consume.Mismatch)
	r.wants(first(), everonce.Replayed, consume.Ack)
}

// Settled as not done, the replayed dead letter runs.
func TestUnknownIsADeadLetterThatRunsOnceSettled(t *testing.T) {
	fail := true
	r := rigged(t, func(context.Context, *consume.Message, order) error {
		if fail {
			return errors.New("the line went dead")
		}
		return nil
	}, nil)
	r.wantsDeadLetter(first(), everonce.Unknown, consume.Unknown)
	r.wantsDeadLetter(first(), everonce.Unknown, consume.Unknown)
	r.settle(everonce.Settlement{Verdict: everonce.SettleNotDone})
	fail = false
	r.wants(first(), everonce.Executed, consume.Ack)
}

func TestNotRecordedIsHeldAndNotRunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ran := 0
		r := rigged(t, func(context.Context, *consume.Message, order) error { ran++; return nil }, nil)
		r.store.complete = errDown
		r.wants(first(), everonce.NotRecorded, consume.Hold)
		r.store.complete = nil
		// The record has the outcome: under Refuse it is unknown, to be settled and not run again.
		time.Sleep(time.Minute)
		r.wantsDeadLetter(first(), everonce.Unknown, consume.Unknown)
		if ran != 1 {
			t.Errorf("it ran %d times", ran)
		}
	})
}

func TestStoreErrorIsHeld(t *testing.T) {
	r := rigged(t, done, nil)
	r.store.claim = errDown
	r.wants(first(), everonce.StoreFailed, consume.Hold)
	r.store.claim = nil
	r.wants(first(), everonce.Executed, consume.Ack)
}

// Another delivery does not repair a record that cannot be read, and it must not block later messages.
func TestCorruptRecordIsADeadLetter(t *testing.T) {
	r := rigged(t, done, nil)
	r.store.claim = driver.ErrCorruptRecord
	r.wantsDeadLetter(first(), everonce.StoreFailed, consume.BadRecord)
}

// A refusal that cannot be read says nothing of the message having been done: it is no acknowledgement, nor mended by another delivery.
func TestARefusalThatCanNotBeReadIsADeadLetter(t *testing.T) {
	r := rigged(t, done, nil)
	claim := claimFirst(t, r.store)
	rec, err := r.store.Get(t.Context(), driver.GetRequest{ID: claim.ID})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.store.Complete(t.Context(), driver.CompleteRequest{
		ID: claim.ID, Token: rec.Record.Token, Nonce: claim.Nonce, Lifetime: claim.Lifetime,
		Result: driver.SavedResult{Kind: driver.ResultFailure, Codec: "failure/1", Data: []byte("?")},
	}); err != nil {
		t.Fatal(err)
	}
	r.wantsDeadLetter(first(), everonce.StoreFailed, consume.BadRecord)
}

// A record of a newer version is for a program that is being rolled out.
func TestNewerRecordComesLaterWithoutCounting(t *testing.T) {
	r := rigged(t, done, nil)
	r.store.claim = driver.ErrNewerRecord
	m := first()
	m.Retries = 1000
	if v := r.wants(m, everonce.StoreFailed, consume.Defer); v.After != 10*time.Minute {
		t.Errorf("it comes again after %v, want 10m", v.After)
	}
}

// A message whose handling was not begun when the end came is left to the broker.
func TestEndedBeforeItBeganIsKept(t *testing.T) {
	r := rigged(t, done, nil)
	ctx, end := context.WithCancel(t.Context())
	end()
	if v := r.c.Handle(ctx, first()); v.Disposition != consume.Hold {
		t.Errorf("%v, %v, %v; want keep", v.Outcome, v.Disposition, v.Err)
	}
}

// Two consumers of one event share a store, and neither skips the other's work.
func TestTwoConsumersOfOneEvent(t *testing.T) {
	r := rigged(t, done, nil)
	mail, err := consume.New(r.recv, consume.Spec[order]{Consumer: "mail", Key: consume.ProducerID(), Handle: done})
	if err != nil {
		t.Fatal(err)
	}
	r.wants(first(), everonce.Executed, consume.Ack)
	if v := mail.Handle(t.Context(), first()); v.Outcome != everonce.Executed {
		t.Errorf("the other consumer: %v, %v", v.Outcome, v.Err)
	}
}

// A copy that comes by another queue, at another time, is the same operation.
func TestQueueAndDeliveryNeverEnterTheKey(t *testing.T) {
	r := rigged(t, done, func(s *consume.Spec[order]) { s.Compare.Headers = []string{"tenant"} })
	m := first()
	m.Headers = map[string]string{"tenant": "a"}
	r.wants(m, everonce.Executed, consume.Ack)
	again := *m
	again.Source, again.Subject, again.BrokerID, again.Deliveries, again.Redelivered, again.Retries = "orders.retry", "x", "b", 7, true, 3
	again.Headers = map[string]string{"tenant": "a", "x-death": "1"}
	r.wants(&again, everonce.Replayed, consume.Ack)
	other := *m
	other.Headers = map[string]string{"tenant": "b"}
	r.wantsDeadLetter(&other, everonce.Mismatch, consume.Mismatch)
}

// Each header of the fingerprint counts, and one that is empty is not one that is missing.
func TestEachHeaderOfTheFingerprintIsCompared(t *testing.T) {
	r := rigged(t, done, func(s *consume.Spec[order]) { s.Compare.Headers = []string{"tenant", "currency"} })
	m := first()
	m.Headers = map[string]string{"tenant": "a", "currency": ""}
	r.wants(m, everonce.Executed, consume.Ack)
	r.wants(m, everonce.Replayed, consume.Ack)
	for _, headers := range []map[string]string{
		{"tenant": "b", "currency": ""}, {"tenant": "a", "currency": "EUR"}, {"tenant": "a"}, {"currency": ""}, {},
	} {
		other := *m
		other.Headers = headers
		r.wantsDeadLetter(&other, everonce.Mismatch, consume.Mismatch)
	}
}

// A settlement is remembered for its own lifetime, by default the receiver's, and not for the consumer's: a dead
// letter that is replayed later is a new message.
func TestASettlementIsRememberedForItsOwnLifetime(t *testing.T) {
	for name, c := range map[string]struct {
		lifetime everonce.Lifetime
		want     everonce.Outcome
	}{
		"the receiver's": {everonce.Lifetime{}, everonce.Executed},
		"a queue's":      {everonce.ForQueue(), everonce.Elided},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fail := true
				r := rigged(t, func(context.Context, *consume.Message, order) error {
					if fail {
						return errors.New("the line went dead")
					}
					return nil
				}, nil)
				r.wantsDeadLetter(first(), everonce.Unknown, consume.Unknown)
				r.settle(everonce.Settlement{Verdict: everonce.SettleDone, Lifetime: c.lifetime})
				fail = false
				time.Sleep(5 * 24 * time.Hour) // less than the consumer's Window
				r.wants(first(), c.want, consume.Ack)
			})
		})
	}
}

// A message that was settled as done is done, whatever the settlement says that its result is: a message has none.
func TestAResultOfASettlementIsTakenForDone(t *testing.T) {
	for name, s := range map[string]everonce.Settlement{
		"a text":   {Verdict: everonce.SettleDone, Encoded: []byte(`"mail-7"`)},
		"a number": {Verdict: everonce.SettleDone, Encoded: []byte(`7`)},
		"raw":      {Verdict: everonce.SettleDone, Encoded: []byte(`7`), Codec: "raw"},
		"custom":   {Verdict: everonce.SettleDone, Encoded: []byte(`7`), Codec: "custom"},
	} {
		t.Run(name, func(t *testing.T) {
			r := rigged(t, func(context.Context, *consume.Message, order) error { return errors.New("the line went dead") }, nil)
			r.wantsDeadLetter(first(), everonce.Unknown, consume.Unknown)
			key, err := r.c.KeyOf(first())
			if err != nil {
				t.Fatal(err)
			}
			if err := everonce.Settle(t.Context(), r.store, key.RecordID(), s); err != nil {
				t.Fatal(err)
			}
			r.wants(first(), everonce.Replayed, consume.Ack)
		})
	}
}
