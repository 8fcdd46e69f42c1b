package enginetest

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// A settlement whose store does not answer times out, and is taken back although its own time, or its caller's, is
// over.
func TestSettleAtAStoreThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		leaveUnknown(t, newReceiver(t, s, everonce.Refuse, nil), keyOf("x"))
		s.on("Claim", s.count("Claim")+1, func(ctx context.Context, call func() error) error {
			_ = call()
			<-ctx.Done()
			return ctx.Err()
		})
		start := time.Now()
		err := everonce.Settle(context.Background(), s, keyOf("x").RecordID(), everonce.Settlement{Verdict: everonce.SettleNotDone})
		checkErr(t, err, everonce.ErrStore)
		if d := time.Since(start); d < time.Second || d > time.Minute {
			t.Errorf("it took %v", d)
		}
		rec := s.record(t, keyOf("x"))
		checkEqual(t, "state", rec.State, driver.StateAbandoned)
		checkEqual(t, "class", rec.LastError, "settle")
		checkErr(t, everonce.Settle(context.Background(), s, keyOf("x").RecordID(), everonce.Settlement{Verdict: everonce.SettleNotDone}), nil)
		checkEqual(t, "class", s.record(t, keyOf("x")).LastError, "settled")
	})
}

// A step that another settlement has settled first cannot be settled any more, and the operation is still unknown.
func TestSettleOfAStepThatIsSettledMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		rec := diedIn(t, s.under, keyOf("x"), time.Second)
		_, err := s.under.SaveStep(context.Background(), driver.SaveStepRequest{
			ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Step: driver.StepRecord{Name: "charge", State: driver.StepOpen, Attempt: 1},
		})
		checkErr(t, err, nil)
		time.Sleep(time.Minute)
		settlement := everonce.Settlement{Verdict: everonce.SettleNotDone, Step: "charge"}
		s.on("Claim", 1, func(_ context.Context, call func() error) error {
			checkErr(t, everonce.Settle(context.Background(), s.under, rec.ID, settlement), nil)
			return call()
		})
		checkErr(t, everonce.Settle(context.Background(), s, rec.ID, settlement), everonce.ErrNotUnknown)
		checkEqual(t, "state", s.record(t, keyOf("x")).State, driver.StateAbandoned)
	})
}

// A record that is live in a transaction has no known end, and a summary of the greatest length is kept whole.
func TestSettleAnswers(t *testing.T) {
	s := newMapStore()
	h, _, err := s.Begin(context.Background(), driver.BeginRequest{Timeout: time.Hour, Claim: &driver.ClaimRequest{ID: keyOf("x").RecordID(), Nonce: driver.NewNonce()}})
	checkErr(t, err, nil)
	err = everonce.Settle(context.Background(), s, keyOf("x").RecordID(), everonce.Settlement{Verdict: everonce.SettleDone})
	checkErr(t, err, everonce.ErrInProgress)
	checkEqual(t, "RetryAfter", asError(t, err).RetryAfter, time.Duration(0))
	checkErr(t, h.Rollback(context.Background()), nil)

	m := memstore.New(nil)
	leaveUnknown(t, newReceiver(t, m, everonce.Refuse, nil), keyOf("x"))
	long := bytes.Repeat([]byte("s"), driver.MaxSummaryLen)
	checkErr(t, everonce.Settle(context.Background(), m, keyOf("x").RecordID(), everonce.Settlement{Verdict: everonce.SettleDone, Summary: long}), nil)
	checkEqual(t, "Summary", recordIn(t, m, keyOf("x")).Result.Summary, long)
}

// A settlement of what there is no record of leaves none, also where its claim was not answered.
func TestSettleOfNothingLeavesNothing(t *testing.T) {
	s := newFaultStore()
	s.on("Claim", 0, lose(errNet))
	checkErr(t, everonce.Settle(context.Background(), s, keyOf("x").RecordID(), everonce.Settlement{Verdict: everonce.SettleNotDone}), errNet)
	checkEqual(t, "record", s.record(t, keyOf("x")), driver.Record{})
	checkEqual(t, "releases", s.count("Release"), 0)
}
