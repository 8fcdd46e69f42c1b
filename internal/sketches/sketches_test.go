package sketches

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// sessionRows and forgotten keep a session as a database would.
type sessionRows struct{ low uint64 }

func (s *sessionRows) Read(_ context.Context, id string) (SessionRow, error) {
	return SessionRow{ID: id, Low: s.low, Window: 8}, nil
}

func (s *sessionRows) Advance(_ context.Context, _ string, low uint64) (uint64, error) {
	previous := s.low
	s.low = max(s.low, low)
	return previous, nil
}

// forgetting deletes all that it can: the records of the session's requests, which are all completed here.
type forgetting struct{ store *memstore.Store }

func (f forgetting) Forget(ctx context.Context, _ []everonce.RecordID) error {
	_, err := f.store.DeleteScope(ctx, driver.DeleteScopeRequest{Scope: everonce.ScopeOf("session", "c1"), Limit: 100})
	return err
}

func TestSessionRunsNothingBelowItsMark(t *testing.T) {
	store := memstore.New(nil)
	recv, err := everonce.NewReceiver(store, everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := Sessions{Recv: recv, Rows: &sessionRows{}, Records: forgetting{store}}
	runs := 0
	send := func(number, ack uint64) (everonce.Result[[]byte], error) {
		return s.Handle(t.Context(), Request{Session: "c1", Number: number, Ack: ack, Body: []byte("x")}, func(context.Context, *everonce.Attempt, []byte) ([]byte, error) {
			runs++
			return []byte(strconv.Itoa(runs)), nil
		})
	}
	for _, n := range []uint64{1, 1, 2} {
		if _, err := send(n, 0); err != nil {
			t.Fatal(err)
		}
	}
	if runs != 2 {
		t.Fatalf("%d runs of two requests", runs)
	}
	if _, err := send(3, 2); err != nil { // acknowledges 1 and 2: their records go
		t.Fatal(err)
	}
	for _, n := range []uint64{1, 2} { // packets that come late
		if _, err := send(n, 0); !errors.Is(err, ErrStale) {
			t.Errorf("request %d, below the mark: %v", n, err)
		}
	}
	if _, err := send(11, 2); !errors.Is(err, ErrWindowFull) {
		t.Errorf("request 11, past the window: %v", err)
	}
	if _, err := send(4, 4); !errors.Is(err, ErrBadAck) {
		t.Errorf("a request that acknowledges itself: %v", err)
	}
	if runs != 3 {
		t.Errorf("%d runs of three requests", runs)
	}
}

func TestFSMIsDeterministic(t *testing.T) {
	balance := [2]int{}
	replica := func(i int) *FSM {
		return NewFSM(func(p []byte) ([]byte, error) {
			if string(p) == "bad" {
				return nil, errors.New("refused")
			}
			balance[i] -= len(p)
			return []byte(strconv.Itoa(balance[i])), nil
		})
	}
	a, b := replica(0), replica(1)
	start := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	command := func(id, payload string, after time.Duration) Command {
		key := everonce.Key{Scope: "raft", ID: id}
		return Command{
			Stamp: start.Add(after), Payload: []byte(payload), Life: everonce.ForQueue(),
			Claim: driver.ClaimRequest{ID: key.RecordID(), Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), Fingerprint: driver.Fingerprint(everonce.FingerprintOf(payload))},
		}
	}
	one := command("1", "xx", 0)
	resent := one
	resent.Stamp = start.Add(-time.Hour) // by a new leader, whose clock is behind
	for i, tc := range []struct {
		cmd  Command
		want everonce.Outcome
	}{
		{one, everonce.Executed},
		{resent, everonce.Replayed},
		{command("1", "xx", time.Second), everonce.Replayed},
		{command("1", "other", time.Second), everonce.Mismatch},
		{command("2", "bad", time.Second), everonce.Failed},
		{command("2", "y", time.Second), everonce.Executed},
		{command("1", "xx", everonce.ForQueue().Retention+time.Second), everonce.Expired},
		{command("1", "xx", everonce.ForQueue().Total()+time.Second), everonce.Executed},
	} {
		x, y := a.Apply(tc.cmd), b.Apply(tc.cmd)
		if x.Outcome != tc.want || y.Outcome != x.Outcome || !bytes.Equal(x.Result.Data, y.Result.Data) {
			t.Errorf("command %d: %v %q and %v %q, want %v", i, x.Outcome, x.Result.Data, y.Outcome, y.Result.Data, tc.want)
		}
	}
	if balance != [2]int{-5, -5} {
		t.Errorf("balances %v", balance)
	}
	var x, y, again bytes.Buffer
	if err := errors.Join(a.Snapshot(&x), b.Snapshot(&y)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(x.Bytes(), y.Bytes()) {
		t.Errorf("snapshots differ:\n%s\n%s", &x, &y)
	}
	restored := replica(0)
	if err := restored.Restore(bytes.NewReader(x.Bytes())); err != nil {
		t.Fatal(err)
	}
	if err := restored.Snapshot(&again); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(x.Bytes(), again.Bytes()) {
		t.Errorf("restored and saved again:\n%s\n%s", &x, &again)
	}
	if !json.Valid(bytes.SplitN(x.Bytes(), []byte("\n"), 3)[1]) {
		t.Errorf("no JSON: %s", &x)
	}
}
