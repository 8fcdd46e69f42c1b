package everonce_test

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/everonce/everonce"
)

type text interface {
	~uint8 | ~[16]byte | ~[32]byte
	encoding.TextMarshaler
	fmt.Stringer
}

// textOf checks that values and texts lead to each other.
func textOf[V text, P interface {
	*V
	encoding.TextUnmarshaler
}](t *testing.T, sentinel error, values map[string]V, wrong ...string,
) {
	t.Helper()
	var zero V
	name := reflect.TypeFor[V]().Name()
	for want, v := range values {
		got, err := v.MarshalText()
		checkErr(t, err, nil)
		checkEqual(t, name+" as text", string(got), want)
		checkEqual(t, name+" as string", v.String(), want)
		var back V
		checkErr(t, P(&back).UnmarshalText(got), nil)
		if any(back) != any(v) {
			t.Errorf("%s %q was read as %v", name, want, back)
		}
	}
	for _, s := range wrong {
		var v V
		checkErr(t, P(&v).UnmarshalText([]byte(s)), sentinel)
		if any(v) != any(zero) {
			t.Errorf("%s: %q was refused and written", name, s)
		}
	}
}

func TestTexts(t *testing.T) {
	bad := everonce.ErrInvalidArgument
	textOf(t, bad, map[string]everonce.Outcome{
		"none": 0, "executed": everonce.Executed, "replayed": everonce.Replayed, "rejected": everonce.Rejected, "failed": everonce.Failed,
		"in_progress": everonce.InProgress, "mismatch": everonce.Mismatch, "unknown": everonce.Unknown, "expired": everonce.Expired,
		"elided": everonce.Elided, "not_recorded": everonce.NotRecorded, "lease_lost": everonce.LeaseLost, "store_failed": everonce.StoreFailed,
		"invalid": everonce.Invalid,
	}, "", "Executed", "executed ", "outcome(1)")
	textOf(t, bad, map[string]everonce.State{
		"none": 0, "claimed": everonce.StateClaimed, "released": everonce.StateReleased, "abandoned": everonce.StateAbandoned,
		"completed": everonce.StateCompleted, "tombstone": everonce.StateTombstone,
	}, "", "done")
	textOf(t, bad, map[string]everonce.ResultKind{
		"none": 0, "value": everonce.ResultValue, "failure": everonce.ResultFailure, "elided": everonce.ResultElided,
	}, "", "values")
	textOf(t, bad, map[string]everonce.StepState{
		"none": 0, "open": everonce.StepOpen, "done": everonce.StepDone, "not_done": everonce.StepNotDone,
	}, "", "notdone")
	textOf(t, bad, map[string]everonce.Policy{
		"none": 0, "reexecute": everonce.Reexecute, "refuse": everonce.Refuse, "reconcile": everonce.Reconcile,
	}, "", "re-execute")
	id := keyOf("x").RecordID()
	textOf(t, everonce.ErrInvalidKey, map[string]everonce.RecordID{id.String(): id, strings.Repeat("0", 64): {}}, "", "00", id.String()+"0", "x"+id.String()[1:])
	n := everonce.NewNonce()
	textOf(t, bad, map[string]everonce.Nonce{n.String(): n, strings.Repeat("0", 32): {}}, "", "00", n.String()+"00", "x"+n.String()[1:])
}

func TestNamesBeyondTheSets(t *testing.T) {
	for _, v := range []fmt.Stringer{
		everonce.Outcome(200), everonce.State(200), everonce.ResultKind(200), everonce.StepState(200), everonce.Policy(200),
		everonce.Decision(200), everonce.Decision(0), everonce.OpKind(200), everonce.OpKind(0),
	} {
		checkEqual(t, fmt.Sprintf("%T", v), v.String(), "none")
	}
	seen := map[string]bool{}
	for d := everonce.DecideClaimed; d <= everonce.DecideNewer; d++ {
		seen[d.String()] = true
	}
	for k := everonce.OpDo; k <= everonce.OpSettle; k++ {
		seen[k.String()] = true
	}
	if seen["none"] || len(seen) != 10+6 {
		t.Errorf("names of decisions and kinds: %v", seen)
	}
}

func TestRecordAsJSON(t *testing.T) {
	at := time.Date(2026, 5, 1, 12, 0, 0, 123456000, time.UTC)
	want := everonce.Record{
		ID: keyOf("x").RecordID(), Scope: keyOf("x").Scope, Name: "x", State: everonce.StateCompleted, Token: 1 << 60, Nonce: everonce.NewNonce(),
		Owner: "host:1", Attempt: 3, Fingerprint: everonce.FingerprintOf(1),
		Result: everonce.SavedResult{Kind: everonce.ResultValue, Codec: "json", Data: []byte("1"), Summary: []byte("s")},
		Steps: []everonce.StepRecord{{
			Name: "mail", State: everonce.StepDone, Attempt: 1, BeganAt: at, EndedAt: at,
			Result: everonce.SavedResult{Kind: everonce.ResultFailure, Data: []byte("{}")},
		}},
		UnknownStep: "mail", Previous: everonce.Previous{State: everonce.StateAbandoned, Owner: "host:0", ClaimedAt: at},
		LastError: "panic", Format: everonce.FormatVersion, CreatedAt: at, ClaimedAt: at, UpdatedAt: at, CompletedAt: at, ResultUntil: at, PurgeAt: at,
	}
	data, err := json.Marshal(want)
	checkErr(t, err, nil)
	var got everonce.Record
	checkErr(t, json.Unmarshal(data, &got), nil)
	checkEqual(t, "record", got, want)
	for _, name := range []string{`"completed"`, `"value"`, `"done"`, `"failure"`, `"abandoned"`, want.ID.String(), want.Nonce.String()} {
		if !strings.Contains(string(data), name) {
			t.Errorf("%s is not in %s", name, data)
		}
	}
}

func FuzzUnmarshalText(f *testing.F) {
	for _, s := range []string{"executed", "none", "claimed", "value", "open", "refuse", keyOf("x").RecordID().String(), everonce.NewNonce().String()} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, v := range []interface {
			encoding.TextMarshaler
			encoding.TextUnmarshaler
		}{
			new(everonce.Outcome), new(everonce.State), new(everonce.ResultKind), new(everonce.StepState), new(everonce.Policy),
			new(everonce.RecordID), new(everonce.Nonce),
		} {
			if err := v.UnmarshalText(b); err != nil {
				if !errors.Is(err, everonce.ErrInvalidArgument) && !errors.Is(err, everonce.ErrInvalidKey) {
					t.Errorf("%T: %v is no refusal", v, err)
				}
				if !reflect.ValueOf(v).Elem().IsZero() {
					t.Errorf("%T: %q was refused and written", v, b)
				}
				continue
			}
			if got, err := v.MarshalText(); err != nil || !strings.EqualFold(string(got), string(b)) {
				t.Errorf("%T: %q was read, and is written as %q, %v", v, b, got, err)
			}
		}
	})
}

// What an error says it says once: a store's own error begins with the words of the sentinel that is wrapped around it.
func TestAnErrorSaysItOnce(t *testing.T) {
	store := fmt.Errorf("%w: %w: run the migrations", everonce.ErrStore, everonce.ErrSchema)
	for err, want := range map[*everonce.Error]string{
		{Outcome: everonce.StoreFailed, Sentinel: everonce.ErrStore, Cause: store}:                          "everonce: store failed: everonce: store schema: run the migrations",
		{Outcome: everonce.StoreFailed, Sentinel: everonce.ErrStore, Cause: fmt.Errorf("claim: %w", store)}: "everonce: store failed: claim: everonce: store failed: everonce: store schema: run the migrations",
		{Outcome: everonce.Unknown, Sentinel: everonce.ErrOutcomeUnknown, Cause: errors.New("a timeout")}:   everonce.ErrOutcomeUnknown.Error() + ": a timeout",
		{Outcome: everonce.Failed, Cause: errors.New("x")}:                                                  "everonce: failed: x",
	} {
		if got := err.Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
