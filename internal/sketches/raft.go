package sketches

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/transition"
)

// Command is one entry of the log. Everything that differs between replicas was chosen by the
// proposer and stands in it: the time, the nonce, the owner.
type Command struct {
	Stamp   time.Time
	Claim   driver.ClaimRequest
	Payload []byte
	Life    everonce.Lifetime
}

// Applied is the answer to a command.
type Applied struct {
	Outcome everonce.Outcome
	Result  driver.SavedResult
}

// FSM is a state machine whose effects and records change in one step: the transactional mode, with
// the log in the place of the database. It reads no clock, no randomness, and no map in its order.
type FSM struct {
	now     time.Time
	records map[everonce.RecordID]*driver.Record
	apply   func(payload []byte) ([]byte, error) // the application's own state, deterministic
}

// NewFSM returns a state machine over the application's apply.
func NewFSM(apply func([]byte) ([]byte, error)) *FSM {
	return &FSM{records: map[everonce.RecordID]*driver.Record{}, apply: apply}
}

// Apply executes one entry. Its time is the log's, and never goes back when a leader's clock does.
func (f *FSM) Apply(cmd Command) Applied {
	if cmd.Stamp.After(f.now) {
		f.now = cmd.Stamp
	}
	rec, res, err := transition.Claim(f.records[cmd.Claim.ID], cmd.Claim, f.now)
	if err != nil {
		return Applied{Outcome: everonce.Invalid}
	}
	switch res.Decision {
	case driver.DecideClaimed:
	case driver.DecideReplay:
		return Applied{Outcome: everonce.Replayed, Result: res.Record.Result}
	case driver.DecideExpired:
		return Applied{Outcome: everonce.Expired, Result: res.Record.Result}
	case driver.DecideMismatch:
		return Applied{Outcome: everonce.Mismatch}
	default:
		return Applied{Outcome: everonce.Invalid}
	}
	out, err := f.apply(cmd.Payload)
	if err != nil { // refused by the state machine: nothing changed, and every replica refuses it alike
		return Applied{Outcome: everonce.Failed}
	}
	rec, err = transition.Complete(rec, driver.CompleteRequest{
		ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Lifetime: cmd.Life,
		Result: driver.SavedResult{Kind: driver.ResultValue, Codec: "raw", Data: out},
	}, f.now)
	if err != nil {
		return Applied{Outcome: everonce.LeaseLost}
	}
	f.records[rec.ID] = rec
	return Applied{Outcome: everonce.Executed, Result: rec.Result}
}

// Snapshot writes the records in the order of their IDs: restoring and writing again gives the same bytes.
func (f *FSM) Snapshot(w io.Writer) error {
	enc := json.NewEncoder(w)
	if err := enc.Encode(f.now); err != nil {
		return err
	}
	ids := slices.SortedFunc(maps.Keys(f.records), func(a, b everonce.RecordID) int { return bytes.Compare(a[:], b[:]) })
	for _, id := range ids {
		if err := enc.Encode(f.records[id]); err != nil {
			return err
		}
	}
	return nil
}

// Restore reads what Snapshot wrote.
func (f *FSM) Restore(r io.Reader) error {
	dec := json.NewDecoder(r)
	if err := dec.Decode(&f.now); err != nil {
		return err
	}
	f.records = map[everonce.RecordID]*driver.Record{}
	for {
		rec := new(driver.Record)
		switch err := dec.Decode(rec); err {
		case nil:
			f.records[rec.ID] = rec
		case io.EOF:
			return nil
		default:
			return err
		}
	}
}

// Proposer hands a command to the log and returns its answer once it was applied.
type Proposer interface {
	Propose(ctx context.Context, cmd Command) (Applied, error)
}

// Submit is the client's half: the same nonce in every retry, so that a proposal that was applied
// without an answer, or arrives again after a change of leaders, is recognised.
func Submit(ctx context.Context, p Proposer, id everonce.RecordID, key everonce.Key, payload []byte, again func(error) bool) (Applied, error) {
	cmd := Command{
		Claim:   driver.ClaimRequest{ID: id, Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), Fingerprint: driver.Fingerprint(everonce.FingerprintOf(payload))},
		Payload: payload, Life: everonce.ForQueue(),
	}
	for {
		cmd.Stamp = time.Now()
		res, err := p.Propose(ctx, cmd)
		if err == nil || !again(err) || ctx.Err() != nil {
			return res, err
		}
	}
}
