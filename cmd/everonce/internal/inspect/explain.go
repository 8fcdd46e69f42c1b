package inspect

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// Explanation says what became of an operation, and what its next delivery would get.
type Explanation struct {
	Record string `json:"record"`
	Key    string `json:"key_hash"`
	State  string `json:"state"`
	// Story is how it came to stand as it does.
	Story []string `json:"story"`
	// Next is what the next delivery gets: one answer, or one for each policy, since the policy is the
	// receiver's and stands in no record.
	Next []Answer `json:"next"`
	// Steps is what becomes of each step when the operation runs again. It is empty where it will not.
	Steps []Answer `json:"steps,omitempty"`
	// Notes are what else holds.
	Notes []string `json:"notes,omitempty"`
}

// Answer is what somebody gets, and why.
type Answer struct {
	// Policy is the policy under which the answer holds; empty where it holds under each.
	Policy string `json:"policy,omitempty"`
	Step   string `json:"step,omitempty"`
	// Outcome is the outcome of the next delivery, or of a step; [Depends] where the record does not tell.
	Outcome string `json:"outcome"`
	Why     string `json:"why"`
}

// Depends stands in place of an outcome that does not depend on the record alone.
const Depends = "depends"

// Explain explains a record at a time of the store's. The commands that it names find the store by storeFlags.
func Explain(rec *driver.Record, now time.Time, storeFlags string) Explanation {
	x := &explainer{
		Explanation: Explanation{Record: rec.ID.String(), Key: rec.ID.Short(), State: rec.StateAt(now).String()},
		rec:         rec, now: now, storeFlags: storeFlags,
	}
	x.story()
	x.next()
	x.notes()
	return x.Explanation
}

type explainer struct {
	Explanation
	rec        *driver.Record
	now        time.Time
	storeFlags string
}

// say adds a sentence to the story.
func (x *explainer) say(format string, args ...any) {
	x.Story = append(x.Story, fmt.Sprintf(format, args...))
}

func (x *explainer) note(format string, args ...any) {
	x.Notes = append(x.Notes, fmt.Sprintf(format, args...))
}

// always adds the one answer of the next delivery.
func (x *explainer) always(o everonce.Outcome, format string, args ...any) {
	x.under(0, o, format, args...)
}

// under adds the answer under a policy.
func (x *explainer) under(p everonce.Policy, o everonce.Outcome, format string, args ...any) {
	a := Answer{Outcome: o.String(), Why: fmt.Sprintf(format, args...)}
	if p != 0 {
		a.Policy = p.String()
	}
	x.Next = append(x.Next, a)
}

func (x *explainer) at(t time.Time) string { return stamp(t, x.now) }

// classes are the words that records keep of errors, as sentences end with them.
var classes = map[string]string{
	"panic":        "the work panicked",
	"canceled":     "the context of the work was cancelled",
	"deadline":     "the work ran into its deadline",
	"lease_lost":   "the lease was lost",
	"not_done":     "the work returned NotDone",
	"step_unknown": "a step's outcome was unknown",
	"error":        "the work failed",
	"claim":        "its claim was released before the work was called",
	"settled":      "somebody settled it as not done, or settled its unknown step",
	"settle":       "a settlement was not finished",
}

// nothingTookHold has the error classes after which a released operation is known to have had no effect.
var nothingTookHold = map[string]bool{"not_done": true, "claim": true, "settled": true}

func (x *explainer) because() string {
	if x.rec.LastError == "" {
		return ""
	}
	if text, ok := classes[x.rec.LastError]; ok {
		return ": " + text
	}
	return fmt.Sprintf(": the class of its error is %q", x.rec.LastError)
}

// story tells how the record came to stand as it does.
func (x *explainer) story() {
	r := x.rec
	switch p := r.Previous; p.State {
	case driver.StateAbandoned:
		x.say("Attempt %d took over from an attempt by %s, claimed %s, whose outcome was unknown.", r.Attempt, printable(p.Owner), x.at(p.ClaimedAt))
	case driver.StateClaimed:
		x.say("Attempt %d took over by force from an attempt by %s, claimed %s.", r.Attempt, printable(p.Owner), x.at(p.ClaimedAt))
	case driver.StateReleased:
		x.say("Attempt %d followed one that was released.", r.Attempt)
	}
	switch r.State {
	case driver.StateCompleted:
		x.say("Attempt %d, by %s, completed it %s.", r.Attempt, printable(r.Owner), x.at(r.CompletedAt))
		if r.Result.Kind == driver.ResultFailure { // of the operation: its steps may have done something all the same
			x.tookHold()
		}
		for i := range r.Steps {
			if s := &r.Steps[i]; s.State == driver.StepOpen || !s.Readable() {
				x.say("The step %q did not end, and the operation was completed without it: its outcome is unknown.", printable(s.Name))
			}
		}
	case driver.StateReleased:
		x.say("Attempt %d, by %s, ended %s, and the key was released%s.", r.Attempt, printable(r.Owner), x.at(r.UpdatedAt), x.because())
		switch {
		case !nothingTookHold[r.LastError]:
			x.say("That does not mean that nothing happened: with the policy reexecute the key is released in any case. Unless all effects are in steps, it is unknown whether the effect happened.")
		case r.Attempt > 1 && r.LastError != "settled": // the operator who settled it has checked all attempts
			x.say("That holds for attempt %d only: with the policy reexecute an earlier attempt may have failed, and it is unknown whether the effect happened.", r.Attempt)
		}
		x.tookHold()
	case driver.StateClaimed:
		x.say("Attempt %d was claimed by %s %s.", r.Attempt, printable(r.Owner), x.at(r.ClaimedAt))
		if r.StateAt(x.now) == driver.StateAbandoned {
			x.say("Its lease ran out %s: the process died, or could not reach the store. It is unknown whether the effect happened.", x.at(r.LeaseUntil))
		} else {
			x.say("It holds its lease until %s, or longer if it renews it.", x.at(r.LeaseUntil))
		}
	case driver.StateAbandoned:
		x.say("Attempt %d, by %s, ended %s with its outcome unknown%s. It is unknown whether the effect happened.", r.Attempt, printable(r.Owner), x.at(r.UpdatedAt), x.because())
	}
	if r.UnknownStep != "" {
		x.say("The cause is the step %q: it began, did not end, and its policy refuses to run it again.", r.UnknownStep)
	}
}

// next adds what the next delivery gets. That depends on the policy only if a claim that may take over an abandoned
// record is decided differently from one that may not.
func (x *explainer) next() {
	ask := driver.ClaimRequest{Nonce: driver.NewNonce()}
	careful := driver.Decide(x.rec, ask, x.now)
	ask.Take = driver.TakeAbandoned
	bold := driver.Decide(x.rec, ask, x.now)
	switch careful {
	case driver.DecideReplay:
		x.replay()
	case driver.DecideExpired:
		what := "it was done"
		if res := &x.rec.Result; res.Kind == driver.ResultFailure {
			what = fmt.Sprintf("it was rejected (%s)", printable(string(res.Summary)))
		}
		x.always(everonce.Expired, "%s, and the retention of its result ended %s; the work does not run", what, x.at(x.rec.ResultUntil))
	case driver.DecideInProgress:
		x.always(everonce.InProgress, "attempt %d is running; the delivery is refused, or waits if the receiver has a Wait", x.rec.Attempt)
	case driver.DecideClaimed:
		if x.rec.GoneAt(x.now) {
			x.always(everonce.Executed, "the record expired %s, so the key counts as new", x.at(x.rec.PurgeAt))
			return
		}
		x.always(everonce.Executed, "the last attempt was released, so the work runs, as attempt %d", x.rec.Attempt+1)
		x.steps()
	case driver.DecideAbandoned:
		x.abandoned(bold == driver.DecideClaimed)
	case driver.DecideNewer:
		x.always(everonce.StoreFailed, "the record has format %d, and this version reads formats up to %d", x.rec.Format, driver.FormatVersion)
	default:
		x.always(everonce.StoreFailed, "the record decides %q", careful)
	}
}

func (x *explainer) replay() {
	res := &x.rec.Result
	until := "for ever"
	if !x.rec.ResultUntil.IsZero() {
		until = "until " + x.at(x.rec.ResultUntil)
	}
	switch res.Kind {
	case driver.ResultFailure:
		x.always(everonce.Rejected, "it was rejected (%s), and gets the same failure again, %s", printable(string(res.Summary)), until)
	case driver.ResultElided:
		x.always(everonce.Elided, "it was done, and its result was not kept; it is not done again")
	default:
		x.always(everonce.Replayed, "it was done, and gets the saved result (%d bytes of %s), %s", len(res.Data), printable(res.Codec), until)
	}
}

func (x *explainer) abandoned(mayTakeOver bool) {
	if !mayTakeOver {
		x.always(everonce.Unknown, "the step %q is unknown until it is settled, under every policy of the operation", x.rec.UnknownStep)
		x.settle("whether the step "+strconv.Quote(printable(x.rec.UnknownStep))+" happened", "--step "+Word(x.rec.UnknownStep)+" ", "--result JSON", "its result, as JSON")
		return
	}
	x.under(everonce.Reexecute, everonce.Executed, "the work runs again, as attempt %d, with the same downstream keys", x.rec.Attempt+1)
	x.under(everonce.Refuse, everonce.Unknown, "it is not run again until it is settled; with the option EffectsInSteps it continues, as under reexecute")
	x.Next = append(x.Next, Answer{
		Policy: everonce.Reconcile.String(), Outcome: Depends,
		Why: "the receiver asks whether it happened and, depending on the answer, completes it, runs it, or leaves it unknown",
	})
	if IsRequest(x.rec) {
		x.settle("whether it happened", "", "--status STATUS --body-file FILE", "the answer that its duplicates get")
	} else {
		x.settle("whether it happened", "", "--result JSON", "its result, as JSON; leave it out if it has no result")
	}
	x.steps()
}

// settle names the commands that settle this record, as long as no other attempt has followed. The operator fills in
// the result.
func (x *explainer) settle(question, step, result, meaning string) {
	command := fmt.Sprintf("everonce keys settle %s--record %s --token %d %s", x.storeFlags, x.Record, x.rec.Token, step)
	x.note("To settle it yourself, find out %s.", question)
	x.note("If it did (%s): %s--done %s", meaning, command, result)
	x.note("If it did not, and will not: %s--not-done", command)
}

// tookHold names what finished steps did, whatever became of the operation.
func (x *explainer) tookHold() {
	var done []string
	for i := range x.rec.Steps {
		if s := &x.rec.Steps[i]; s.State == driver.StepDone {
			done = append(done, printable(s.Name))
		}
	}
	if len(done) > 0 {
		x.say("Its finished steps did happen: %s.", strings.Join(done, ", "))
	}
}

// steps tells what becomes of the steps when the operation runs again.
func (x *explainer) steps() {
	for i := range x.rec.Steps {
		s := &x.rec.Steps[i]
		a := Answer{Step: s.Name}
		switch {
		case !s.Readable():
			a.Outcome, a.Why = everonce.Unknown.String(), "its result cannot be read: it does not run under any policy, and the operation is unknown until the step is settled"
		case s.State == driver.StepDone:
			a.Outcome, a.Why = everonce.Replayed.String(), fmt.Sprintf("attempt %d finished it %s; it does not run again: its saved result is used", s.Attempt, x.at(s.EndedAt))
		case s.State == driver.StepOpen:
			a.Outcome, a.Why = Depends, fmt.Sprintf("attempt %d began it %s, and it did not end: the step's policy runs it again (reexecute), refuses it (refuse) or asks about it (reconcile)", s.Attempt, x.at(s.BeganAt))
		default:
			a.Outcome, a.Why = everonce.Executed.String(), fmt.Sprintf("it did not happen in attempt %d; it runs", s.Attempt)
		}
		x.Steps = append(x.Steps, a)
	}
}

func (x *explainer) notes() {
	r := x.rec
	if !r.Fingerprint.IsZero() {
		x.note("A delivery of this key with a different request (fingerprint %s) is refused as %s before any of this.", printable(r.Fingerprint.Alg), everonce.Mismatch)
	}
	switch {
	case r.GoneAt(x.now):
	case !r.PurgeAt.IsZero():
		x.note("The record may be removed after %s; then the key is new.", x.at(r.PurgeAt))
	case r.State != driver.StateCompleted:
		x.note("The record does not expire before it is settled or completed.")
	}
}
