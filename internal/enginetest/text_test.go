package enginetest

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
	"github.com/everonce/everonce/driver"
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
	textOf(t, bad, map[string]driver.State{
		"none": 0, "claimed": driver.StateClaimed, "released": driver.StateReleased, "abandoned": driver.StateAbandoned,
		"completed": driver.StateCompleted, "tombstone": driver.StateTombstone,
	}, "", "done")
	textOf(t, bad, map[string]driver.ResultKind{
		"none": 0, "value": driver.ResultValue, "failure": driver.ResultFailure, "elided": driver.ResultElided,
	}, "", "values")
	textOf(t, bad, map[string]driver.StepState{
		"none": 0, "open": driver.StepOpen, "done": driver.StepDone, "not_done": driver.StepNotDone,
	}, "", "notdone")
	textOf(t, bad, map[string]everonce.Policy{
		"none": 0, "reexecute": everonce.Reexecute, "refuse": everonce.Refuse, "reconcile": everonce.Reconcile,
	}, "", "re-execute")
	id := keyOf("x").RecordID()
	textOf(t, everonce.ErrInvalidKey, map[string]everonce.RecordID{id.String(): id, strings.Repeat("0", 64): {}}, "", "00", id.String()+"0", "x"+id.String()[1:])
	n := driver.NewNonce()
	textOf(t, bad, map[string]driver.Nonce{n.String(): n, strings.Repeat("0", 32): {}}, "", "00", n.String()+"00", "x"+n.String()[1:])
}

func TestNamesBeyondTheSets(t *testing.T) {
	for _, v := range []fmt.Stringer{
		everonce.Outcome(200), driver.State(200), driver.ResultKind(200), driver.StepState(200), everonce.Policy(200),
		driver.Decision(200), driver.Decision(0),
	} {
		checkEqual(t, fmt.Sprintf("%T", v), v.String(), "none")
	}
	seen := map[string]bool{}
	for d := driver.DecideClaimed; d <= driver.DecideNewer; d++ {
		seen[d.String()] = true
	}
	if seen["none"] || len(seen) != 10 {
		t.Errorf("names of decisions: %v", seen)
	}
}

func TestRecordAsJSON(t *testing.T) {
	at := time.Date(2026, 5, 1, 12, 0, 0, 123456000, time.UTC)
	want := driver.Record{
		ID: keyOf("x").RecordID(), Scope: keyOf("x").Scope, Name: "x", State: driver.StateCompleted, Token: 1 << 60, Nonce: driver.NewNonce(),
		Owner: "host:1", Attempt: 3, Fingerprint: driver.Fingerprint(everonce.FingerprintOf(1)),
		Result: driver.SavedResult{Kind: driver.ResultValue, Codec: "json", Data: []byte("1"), Summary: []byte("s")},
		Steps: []driver.StepRecord{{
			Name: "mail", State: driver.StepDone, Attempt: 1, BeganAt: at, EndedAt: at,
			Result: driver.SavedResult{Kind: driver.ResultFailure, Data: []byte("{}")},
		}},
		UnknownStep: "mail", Previous: driver.Previous{State: driver.StateAbandoned, Owner: "host:0", ClaimedAt: at},
		LastError: "panic", Format: driver.FormatVersion, CreatedAt: at, ClaimedAt: at, UpdatedAt: at, CompletedAt: at, ResultUntil: at, PurgeAt: at,
	}
	data, err := json.Marshal(want)
	checkErr(t, err, nil)
	var got driver.Record
	checkErr(t, json.Unmarshal(data, &got), nil)
	checkEqual(t, "record", got, want)
	for _, name := range []string{`"completed"`, `"value"`, `"done"`, `"failure"`, `"abandoned"`, want.ID.String(), want.Nonce.String()} {
		if !strings.Contains(string(data), name) {
			t.Errorf("%s is not in %s", name, data)
		}
	}
}

func FuzzUnmarshalText(f *testing.F) {
	for _, s := range []string{"executed", "none", "claimed", "value", "open", "refuse", keyOf("x").RecordID().String(), driver.NewNonce().String()} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, v := range []interface {
			encoding.TextMarshaler
			encoding.TextUnmarshaler
		}{
			new(everonce.Outcome), new(driver.State), new(driver.ResultKind), new(driver.StepState), new(everonce.Policy),
			new(everonce.RecordID), new(driver.Nonce),
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

// An error's text has no repetition: a store's own error begins with the words of the sentinel that is wrapped
// around it.
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
