package everonce

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/everonce/everonce/driver"
)

// SettleVerdict is the verdict of a settlement.
type SettleVerdict uint8

// The verdicts.
const (
	// SettleDone: the effect happened; Value, Encoded or Failure is its result.
	SettleDone SettleVerdict = iota + 1
	// SettleNotDone: the effect did not happen, and will not. The key, or the step, may be tried again. Other open
	// steps stay unknown: settle each.
	SettleNotDone
)

// Settlement settles an unknown operation, or one step of it.
type Settlement struct {
	// Verdict is required.
	Verdict SettleVerdict
	// Step names the step to settle; empty settles the operation. If that step made the operation abandoned, the
	// operation is released, and the next delivery continues from there. Otherwise it stays abandoned.
	Step string
	// Token, if set, is the [driver.Record.Token] that the verdict is about. If another attempt followed, nothing is
	// settled, and the error is [ErrLeaseLost].
	Token driver.Token
	// Value is the result for duplicates, encoded by the receiver's codec. Encoded is the same, encoded by the codec
	// named Codec (default "json"). Failure is a permanent failure instead. Set at most one; with none the result is
	// elided. A step needs one, be it struct{}{}, unless the work handles [ErrResultElided].
	Value   any
	Encoded []byte
	Codec   string
	Failure *PermanentError
	// Summary is kept with the result: see [WithSummary].
	Summary []byte
	// Force settles a live claim too. Its attempt loses the record, but its work continues.
	Force bool
	// By names who settles, and becomes the record's owner. Default: the receiver's owner.
	By string
	// Lifetime is how long the result is kept. Default: the receiver's; without a receiver [ForFinance]. If the
	// application's own is longer, set it here, or the key is new again too early.
	Lifetime Lifetime
}

// Settle settles an operation whose outcome is unknown: abandoned, or with an expired lease. The store then refuses
// all later writes of the old attempt. Errors: [ErrNotFound]; [ErrNotUnknown] (the operation is completed or
// released, or the step is not open); [ErrInProgress] (the operation is live: see Force); [ErrLeaseLost] (another
// was faster: see also Token); [ErrInTransaction]; [ErrInvalidKey]; [ErrInvalidArgument]; [ErrStore]; the context's
// cause. After the last two, settle again to find out.
func (r *Receiver) Settle(ctx context.Context, key Key, s Settlement) error {
	op, err := r.prepare(ctx, key, RecordID{}, nil, 0)
	if err != nil {
		return err
	}
	if err := op.ready(ctx); err != nil { // with another secret it would look for another record
		return err
	}
	if s.Lifetime == (Lifetime{}) {
		s.Lifetime = r.set.Lifetime
	}
	if s.By == "" {
		s.By = r.set.Owner
	}
	if err := s.encode(r.set); err != nil {
		return op.fail(Invalid, err, nil)
	}
	defer op.hub.Wake(op.id)
	if op.set.Observer != nil {
		o := op.observe(ctx, opSettle, s.Step)
		err = Settle(o.ctx, r.store, op.id, s)
		o.end(s.outcome(err), err)
		return err
	}
	return Settle(ctx, r.store, op.id, s)
}

// encode replaces Value by its encoding with the receiver's codec.
func (s *Settlement) encode(set *settings) error {
	if s.Value == nil {
		return nil
	}
	if s.Encoded != nil {
		return errManyResults
	}
	data, err := marshalAny(set.Codec, s.Value)
	if err != nil {
		return fmt.Errorf("%w: the settlement's value cannot be encoded: %w", ErrInvalidArgument, err)
	}
	if data == nil { // an empty value is not a missing one
		data = []byte{}
	}
	s.Encoded, s.Codec, s.Value = data, set.codecName, nil
	return nil
}

var errManyResults = fmt.Errorf("%w: a settlement takes one of Value, Encoded and Failure", ErrInvalidArgument)

// outcome returns the outcome to observe: Executed only if the settlement says that the effect happened.
func (s *Settlement) outcome(err error) Outcome {
	var e *Error
	switch {
	case err == nil && s.Verdict == SettleNotDone:
		return Failed
	case err == nil && s.Failure != nil:
		return Rejected
	case err == nil:
		return Executed
	case errors.As(err, &e):
		return e.Outcome
	}
	return Invalid
}

// settleLease is how long a settlement holds its record.
const settleLease = 30 * time.Second

// Settle is [Receiver.Settle] by the record's ID, for an operator's tool. It rejects Settlement.Value with
// [ErrInvalidArgument]: use Encoded.
func Settle(ctx context.Context, store Store, id RecordID, s Settlement) error {
	op := &operation{id: id}
	if isNil(store) {
		return op.fail(Invalid, fmt.Errorf("%w: the store is nil", ErrInvalidArgument), nil)
	}
	if err := s.validate(); err != nil {
		return op.fail(Invalid, err, nil)
	}
	if inTransactionOn(ctx, store) {
		return op.fail(Invalid, ErrInTransaction, nil)
	}
	if s.Lifetime == (Lifetime{}) {
		s.Lifetime = ForFinance()
	}
	found, err := s.look(ctx, store, op)
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return op.callerGone(ctx, nil)
	}
	bounded, cancel := context.WithTimeout(ctx, settleLease) // a tool's context may have no deadline
	defer cancel()
	take := driver.TakeToSettle
	if s.Force {
		take = driver.TakeForced
	}
	req := driver.ClaimRequest{ID: id, Nonce: driver.NewNonce(), Owner: s.By, Lease: settleLease, Take: take}
	claim, err := store.Claim(bounded, req)
	switch {
	case err == nil:
	case isFinal(err):
		return op.fail(StoreFailed, ErrStore, err)
	default: // it may have been done
		s.putBack(ctx, store, id, req.Nonce)
		return op.storeFailed(ctx, err)
	}
	switch claim.Decision {
	case driver.DecideClaimed:
	case driver.DecideReplay, driver.DecideExpired:
		return op.fail(Replayed, ErrNotUnknown, nil)
	case driver.DecideInProgress:
		e := op.fail(InProgress, ErrInProgress, nil)
		e.RetryAfter = max(claim.Record.LeaseUntil.Sub(claim.Now), 0)
		return e
	case driver.DecideAbsent:
		return op.fail(Failed, ErrNotFound, nil)
	default:
		return op.fail(Failed, ErrNotUnknown, nil)
	}
	switch {
	case s.Token != 0 && claim.Record.Attempt != found.Attempt+1: // it began after the look
		s.putBack(ctx, store, id, req.Nonce)
		return op.fail(LeaseLost, ErrLeaseLost, errFollowed)
	case ctx.Err() != nil:
		s.putBack(ctx, store, id, req.Nonce)
		return op.callerGone(ctx, nil)
	}
	if err := s.write(bounded, store, &claim.Record); err != nil {
		s.putBack(ctx, store, id, req.Nonce)
		switch {
		case errors.Is(err, ErrLeaseLost):
			return op.fail(LeaseLost, ErrLeaseLost, nil)
		case errors.Is(err, ErrNotUnknown):
			return op.fail(Failed, ErrNotUnknown, err)
		}
		return op.storeFailed(ctx, err)
	}
	return nil
}

// putBack makes the record that the settlement has claimed with that nonce unknown again. If this fails too, the
// settlement's lease lapses into the same state.
func (s *Settlement) putBack(ctx context.Context, store Store, id RecordID, nonce driver.Nonce) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), defaultStoreTimeout)
	defer cancel()
	got, err := store.Get(ctx, driver.GetRequest{ID: id})
	if err != nil || !got.Found { // a release by nonce would create a record
		return
	}
	_, _ = store.Release(ctx, driver.ReleaseRequest{ID: id, Nonce: nonce, State: driver.StateAbandoned, ErrorClass: classSettle, Lifetime: s.Lifetime}) //nolint:errcheck // see above
}

var errFollowed = errors.New("another attempt followed the one that the verdict is about (nothing was settled)")

// look rejects, before anything is written, a verdict on an attempt that another has followed, or on a step that is
// not in question: a forced settlement would take the record from a live attempt for nothing. It returns the
// record, if it had to read it.
func (s *Settlement) look(ctx context.Context, store Store, op *operation) (rec driver.Record, err error) {
	if s.Token == 0 && s.Step == "" {
		return rec, nil
	}
	bounded, cancel := context.WithTimeout(ctx, settleLease)
	defer cancel()
	got, err := store.Get(bounded, driver.GetRequest{ID: op.id})
	switch {
	case err != nil:
		return rec, op.storeFailed(ctx, err)
	case !got.Found:
		return rec, op.fail(Failed, ErrNotFound, nil)
	case s.Token != 0 && s.Token != got.Record.Token:
		return rec, op.fail(LeaseLost, ErrLeaseLost, errFollowed)
	}
	if s.Step != "" {
		if _, err := s.openStep(&got.Record); err != nil {
			return rec, op.fail(Failed, err, nil)
		}
	}
	return got.Record, nil
}

// openStep returns the step to settle. A step that an earlier, failed settlement wrote is still in question, and so
// is one that cannot be read.
func (s *Settlement) openStep(rec *driver.Record) (driver.StepRecord, error) {
	step, ok := rec.Step(s.Step)
	if !ok || step.State != driver.StepOpen && step.Readable() && rec.UnknownStep != s.Step {
		return step, fmt.Errorf("%w: step %q is not open", ErrNotUnknown, s.Step)
	}
	return step, nil
}

func (s *Settlement) validate() error {
	switch {
	case s.Verdict != SettleDone && s.Verdict != SettleNotDone:
		return fmt.Errorf("%w: Settlement.Verdict is missing (SettleDone or SettleNotDone)", ErrInvalidArgument)
	case s.Encoded != nil && s.Failure != nil:
		return errManyResults
	case s.Verdict == SettleNotDone && (s.Encoded != nil || s.Failure != nil):
		return fmt.Errorf("%w: SettleNotDone takes no result", ErrInvalidArgument)
	case s.Value != nil:
		return fmt.Errorf("%w: Settlement.Value needs a receiver (use Encoded)", ErrInvalidArgument)
	case len(s.Summary) > driver.MaxSummaryLen:
		return fmt.Errorf("%w: the summary has %d bytes, the limit is %d", ErrInvalidArgument, len(s.Summary), driver.MaxSummaryLen)
	}
	if s.By != "" {
		if err := driver.CheckName(ErrInvalidArgument, "settlement's By", s.By, maxOwnerLen); err != nil {
			return err
		}
	}
	if s.Codec != "" {
		if err := validateCodec(s.Codec); err != nil {
			return err
		}
	}
	if s.Lifetime != (Lifetime{}) {
		return s.Lifetime.Validate()
	}
	return nil
}

func (s *Settlement) result() driver.SavedResult {
	switch {
	case s.Failure != nil:
		res := s.Failure.normalized(defaultMaxResult).save()
		if s.Summary != nil {
			res.Summary = bytes.Clone(s.Summary)
		}
		return res
	case s.Encoded != nil:
		codec := s.Codec
		if codec == "" {
			codec = "json"
		}
		return driver.SavedResult{Kind: driver.ResultValue, Codec: codec, Data: bytes.Clone(s.Encoded), Summary: bytes.Clone(s.Summary)}
	}
	return driver.SavedResult{Kind: driver.ResultElided, Summary: bytes.Clone(s.Summary)}
}

// write writes the verdict under the settlement's own token.
func (s *Settlement) write(ctx context.Context, store Store, rec *driver.Record) error {
	release := driver.ReleaseRequest{
		ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, State: driver.StateReleased, ErrorClass: classSettled, Lifetime: s.Lifetime,
	}
	if s.Step != "" {
		step, err := s.openStep(rec)
		if err != nil {
			return err
		}
		step.State, step.Result = driver.StepNotDone, driver.SavedResult{}
		if s.Verdict == SettleDone {
			step.State, step.Result = driver.StepDone, s.result()
		}
		req := driver.SaveStepRequest{ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Step: step, Lease: settleLease, Lifetime: s.Lifetime}
		if _, err := store.SaveStep(ctx, req); err != nil {
			return err
		}
		if rec.UnknownStep != s.Step { // the operation is unknown for another reason than this step
			release.State, release.Step = driver.StateAbandoned, rec.UnknownStep
		}
		_, err = store.Release(ctx, release)
		return err
	}
	if s.Verdict == SettleNotDone {
		_, err := store.Release(ctx, release)
		return err
	}
	_, err := store.Complete(ctx, driver.CompleteRequest{ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Result: s.result(), Lifetime: s.Lifetime})
	return err
}
