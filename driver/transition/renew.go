package transition

import (
	"fmt"
	"time"

	"github.com/everonce/everonce/driver"
)

// Renew extends the lease of the attempt that holds the record to now + Lease. It returns [driver.ErrLeaseLost] if that
// attempt does not hold it.
func Renew(rec *driver.Record, req driver.RenewRequest, now time.Time) (next *driver.Record, err error) {
	if err := held(rec, req.Token, req.Nonce); err != nil {
		return nil, err
	}
	next = copyOf(rec)
	renew(next, req.Lease, req.Lifetime, now)
	return next, nil
}

func renew(rec *driver.Record, lease time.Duration, life driver.Lifetime, now time.Time) {
	rec.LeaseUntil = now.Add(lease)
	rec.UpdatedAt = now
	if !rec.PurgeAt.IsZero() { // the claim set ExpireUnsettled
		rec.PurgeAt = now.Add(life.Total())
	}
}

// SaveStep writes a step of the attempt that holds the record, replacing one of the same name. If the request has a
// lease, SaveStep also renews. It returns [driver.ErrLeaseLost] as [Renew] does, and [driver.ErrTooLarge] if the record
// has [driver.MaxSteps] other steps.
//
// A late write undoes nothing: if the step stands ([StepStands]), only the lease is renewed.
func SaveStep(rec *driver.Record, req driver.SaveStepRequest, now time.Time) (next *driver.Record, err error) {
	if err := held(rec, req.Token, req.Nonce); err != nil {
		return nil, err
	}
	at := len(rec.Steps)
	for i := range rec.Steps {
		if rec.Steps[i].Name == req.Step.Name {
			at = i
			break
		}
	}
	if at == len(rec.Steps) && at >= driver.MaxSteps {
		return nil, fmt.Errorf("%w: an operation has at most %d steps", driver.ErrTooLarge, driver.MaxSteps)
	}
	step := req.Step
	step.BeganAt, step.EndedAt = now, time.Time{}
	if step.State != driver.StepOpen {
		step.EndedAt = now
	}
	if at < len(rec.Steps) {
		if old := &rec.Steps[at]; StepStands(old, &step) {
			step = *old
		} else {
			step.BeganAt = old.BeganAt
		}
	}
	steps := make([]driver.StepRecord, max(at+1, len(rec.Steps)))
	copy(steps, rec.Steps)
	steps[at] = step
	next = copyOf(rec)
	next.Steps = steps
	next.UpdatedAt = now
	if req.Lease > 0 {
		renew(next, req.Lease, req.Lifetime, now)
	}
	return next, nil
}

// StepStands reports whether a write must leave the old step unchanged. A done step stays done, and a step that
// ended in an attempt does not reopen in the same attempt. A step that cannot be read does not stand, nor does one
// that was not done in another attempt.
func StepStands(old, write *driver.StepRecord) bool {
	return old.Readable() && (old.State == driver.StepDone ||
		write.State == driver.StepOpen && old.State == driver.StepNotDone && old.Attempt == write.Attempt)
}
