package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/cmd/everonce/internal/inspect"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
	"github.com/everonce/everonce/store/sqlitestore"
)

// TestExplanationsComeTrue delivers what was explained: what explain says of the next delivery is what
// the next delivery gets, for every kind of record and under every policy.
func TestExplanationsComeTrue(t *testing.T) {
	t.Parallel()
	ids := []string{"done", "rejected", "elided", "released", "abandoned", "expired", "mail-unknown", "live", "lapsed"}
	for _, id := range ids {
		for _, policy := range []everonce.Policy{everonce.Reexecute, everonce.Refuse, everonce.Reconcile} {
			t.Run(id+"/"+policy.String(), func(t *testing.T) {
				t.Parallel()
				store := memstore.New(nil)
				if err := populate(store); err != nil {
					t.Fatal(err)
				}
				key := everonce.Key{Scope: scope, ID: id}
				got, err := store.Get(t.Context(), driver.GetRequest{ID: key.RecordID()})
				if err != nil || !got.Found {
					t.Fatalf("found %v, %v", got.Found, err)
				}
				x := inspect.Explain(&got.Record, got.Now, "")
				want := answerUnder(t, x, policy)
				if outcome := deliverUnder(t, store, key, policy); want != inspect.Depends && outcome.String() != want {
					t.Errorf("it got %v; %+v", outcome, x)
				}
			})
		}
	}
}

// A released key proves that nothing happened only if the work said so: Reexecute releases the key after any error. An
// operator who looks up whether a card was charged must not read "no".
func TestAReleasedKeyIsNoProof(t *testing.T) {
	t.Parallel()
	const open = "it is unknown whether the effect happened"
	notDone := everonce.NotDone(errors.New("refused"))
	for name, c := range map[string]struct {
		err   error
		want  bool
		first error // how an attempt before it ended
	}{
		"an error":                {errors.New("timeout"), true, nil},
		"a deadline":              {context.DeadlineExceeded, true, nil},
		"not done":                {notDone, false, nil},
		"settled":                 {nil, false, nil},
		"a panic":                 {errPanic, true, nil},
		"a cancel":                {context.Canceled, true, nil},
		"an error, then not done": {notDone, true, errors.New("timeout")},
	} {
		store := memstore.New(nil)
		policy := everonce.Reexecute
		if c.err == nil {
			policy = everonce.Refuse
		}
		r, err := everonce.NewReceiver(store, policy, nil)
		if err != nil {
			t.Fatal(err)
		}
		key := everonce.Key{Scope: scope, ID: "k"}
		if c.first != nil {
			_, _ = everonce.Do(t.Context(), r, key, func(context.Context, *everonce.Attempt) (int, error) { return 0, c.first }) //nolint:errcheck // it fails
		}
		func() {
			defer func() { _ = recover() }()                                                                //nolint:errcheck // of the work
			_, _ = everonce.Do(t.Context(), r, key, func(context.Context, *everonce.Attempt) (int, error) { //nolint:errcheck // it fails
				switch {
				case c.err == nil:
					return 0, errors.New("unknown")
				case errors.Is(c.err, errPanic):
					panic(c.err)
				}
				return 0, c.err
			})
		}()
		if c.err == nil {
			if err := r.Settle(t.Context(), key, everonce.Settlement{Verdict: everonce.SettleNotDone}); err != nil {
				t.Fatal(err)
			}
		}
		got, err := store.Get(t.Context(), driver.GetRequest{ID: key.RecordID()})
		if err != nil || got.Record.State != driver.StateReleased {
			t.Fatalf("%s: %v, %v", name, got.Record.State, err)
		}
		if x := inspect.Explain(&got.Record, got.Now, ""); strings.Contains(strings.Join(x.Story, " "), open) != c.want {
			t.Errorf("%s: %q; want that %q: %t", name, x.Story, open, c.want)
		}
	}
}

// The same holds for an operation with steps: the effects of finished steps have happened, whatever the last attempt
// said.
func TestAReleasedKeyNamesWhatTookHold(t *testing.T) {
	t.Parallel()
	store := memstore.New(nil)
	r, err := everonce.NewReceiver(store, everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	key := everonce.Key{Scope: scope, ID: "k"}
	_, err = everonce.Do(t.Context(), r, key, func(ctx context.Context, a *everonce.Attempt) (int, error) {
		if _, err := everonce.Step(ctx, a, "charge", func(context.Context) (int, error) { return 1, nil }); err != nil {
			return 0, err
		}
		_, err := everonce.Step(ctx, a, "mail", func(context.Context) (int, error) { return 0, everonce.NotDone(errors.New("no route")) })
		return 0, everonce.NotDone(err)
	})
	if !everonce.IsNotDone(err) {
		t.Fatal(err)
	}
	got, err := store.Get(t.Context(), driver.GetRequest{ID: key.RecordID()})
	if err != nil || got.Record.State != driver.StateReleased || got.Record.LastError != "not_done" {
		t.Fatalf("%v, %q: %v", got.Record.State, got.Record.LastError, err)
	}
	if x := inspect.Explain(&got.Record, got.Now, ""); !slices.Contains(x.Story, "Its finished steps did happen: charge.") {
		t.Errorf("%q does not say that the charge took hold", x.Story)
	}
}

// Nor where an operation was refused for good: that is said of the whole, by its work, which may have done a part of
// it, or not know.
func TestARefusalNamesWhatTookHold(t *testing.T) {
	t.Parallel()
	store := memstore.New(nil)
	r, err := everonce.NewReceiver(store, everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	for id, refused := range map[string]error{"refused": everonce.Permanent("http_503", errors.New("sorry"), nil), "done": nil} {
		key := everonce.Key{Scope: scope, ID: id}
		_, err := everonce.Do(t.Context(), r, key, func(ctx context.Context, a *everonce.Attempt) (int, error) {
			if _, err := everonce.Step(ctx, a, "charge", func(context.Context) (int, error) { return 1, nil }); err != nil {
				return 0, err
			}
			if _, err := everonce.Step(ctx, a, "mail", func(context.Context) (int, error) { return 0, errors.New("timeout") }); err == nil {
				t.Error("the mail was sent")
			}
			return 0, refused
		})
		if (err != nil) != (refused != nil) {
			t.Fatal(err)
		}
		got, err := store.Get(t.Context(), driver.GetRequest{ID: key.RecordID()})
		if err != nil || got.Record.State != driver.StateCompleted {
			t.Fatalf("%v: %v", got.Record.State, err)
		}
		x := inspect.Explain(&got.Record, got.Now, "")
		if said := slices.Contains(x.Story, "Its finished steps did happen: charge."); said != (refused != nil) {
			t.Errorf("%s: %q; that the charge took hold: %t", id, x.Story, said)
		}
		if !slices.Contains(x.Story, `The step "mail" did not end, and the operation was completed without it: its outcome is unknown.`) {
			t.Errorf("%s: %q does not say that the mail's outcome is unknown", id, x.Story)
		}
	}
}

// The command that explain suggests for an unknown outcome can be copied unchanged, except for the verdict.
func TestTheSuggestedCommandSettles(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "payments.db")
	store, err := sqlitestore.Open(t.Context(), file, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(populate(store), store.Close()); err != nil {
		t.Fatal(err)
	}
	everonce := func(args ...string) string {
		cmd := exec.Command("everonce", args...)
		cmd.Env = append(os.Environ(), noRace, "EVERONCE_STORE=sqlite:"+file)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%v: %v: %s", args, err, out)
		}
		return string(out)
	}
	for _, id := range []string{"abandoned", "mail-unknown", "lapsed"} {
		said := everonce("keys", "explain", "--id", id)
		command := regexp.MustCompile(`and will not: everonce (keys settle .+)\n`).FindStringSubmatch(said)
		if command == nil {
			t.Errorf("%s: no command in %s", id, said)
			continue
		}
		everonce(append(strings.Fields(command[1]), "--yes")...)
		if said := everonce("keys", "explain", "--id", id); !strings.Contains(said, "The operation is released") {
			t.Errorf("%s, settled: %s", id, said)
		}
	}
}

var errPanic = errors.New("panic")

// answerUnder returns the one answer that holds under a policy.
func answerUnder(t *testing.T, x inspect.Explanation, p everonce.Policy) string {
	t.Helper()
	var found []string
	for _, a := range x.Next {
		if a.Policy == "" || a.Policy == p.String() {
			found = append(found, a.Outcome)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d answers under %v: %+v", len(found), p, x.Next)
	}
	return found[0]
}

func deliverUnder(t *testing.T, store everonce.Store, key everonce.Key, p everonce.Policy) everonce.Outcome {
	t.Helper()
	r, err := everonce.NewReceiver(store, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	var opts []everonce.CallOption
	if p == everonce.Reconcile {
		opts = append(opts, everonce.WithReconcile(func(context.Context, everonce.Abandoned) (everonce.Verdict[receipt], error) {
			return everonce.StillUnknown[receipt](), nil
		}))
	}
	res, err := everonce.Do(t.Context(), r, key, func(context.Context, *everonce.Attempt) (receipt, error) { return receipt{1}, nil }, opts...)
	if errors.Is(err, everonce.ErrInvalidArgument) || res.Outcome == 0 {
		t.Fatalf("%v, %v", res.Outcome, err)
	}
	return res.Outcome
}

// TestExplainsTheRest: a record whose time is over, and one of a newer format.
func TestExplainsTheRest(t *testing.T) {
	t.Parallel()
	store := memstore.New(nil)
	if err := populate(store); err != nil {
		t.Fatal(err)
	}
	got, err := store.Get(t.Context(), driver.GetRequest{ID: everonce.Key{Scope: scope, ID: "done"}.RecordID()})
	if err != nil {
		t.Fatal(err)
	}
	if x := inspect.Explain(&got.Record, got.Record.PurgeAt, ""); answerUnder(t, x, everonce.Refuse) != everonce.Executed.String() {
		t.Errorf("gone: %+v", x)
	}
	got.Record.Format = driver.FormatVersion + 1
	if x := inspect.Explain(&got.Record, got.Now, ""); answerUnder(t, x, everonce.Refuse) != everonce.StoreFailed.String() {
		t.Errorf("of a newer format: %+v", x)
	}
}

// An expired operation was done, or it was rejected for good. An operator who confuses the two books a charge that
// never happened.
func TestExplanationOfWhatHasExpired(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for kind, want := range map[driver.ResultKind]string{
		driver.ResultValue:   "it was done",
		driver.ResultFailure: "it was rejected (card_declined)",
	} {
		x := inspect.Explain(&driver.Record{
			State: driver.StateCompleted, Attempt: 1, Format: driver.FormatVersion,
			Result:      driver.SavedResult{Kind: kind, Summary: []byte("card_declined")},
			CompletedAt: now.Add(-2 * time.Hour), ResultUntil: now.Add(-time.Hour), PurgeAt: now.Add(time.Hour),
		}, now, "")
		if len(x.Next) != 1 || x.Next[0].Outcome != "expired" || !strings.HasPrefix(x.Next[0].Why, want) {
			t.Errorf("%v: %+v, want expired, because %s", kind, x.Next, want)
		}
		for _, s := range x.Story {
			if kind == driver.ResultFailure && strings.Contains(s, "done") {
				t.Errorf("a rejection is explained as: %s", s)
			}
		}
	}
}

// A step that cannot be read does not run. The explanation must not say that it had no effect, or the operator lets a
// delivery continue that cannot.
func TestExplanationOfAStepThatCanNotBeRead(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, step := range []driver.StepRecord{{Name: "mail"}, {Name: "mail", State: driver.StepDone, Attempt: 1}} {
		x := inspect.Explain(&driver.Record{
			State: driver.StateReleased, Attempt: 1, Format: driver.FormatVersion, PurgeAt: now.Add(time.Hour), Steps: []driver.StepRecord{step},
		}, now, "")
		if len(x.Steps) != 1 || x.Steps[0].Outcome != everonce.Unknown.String() || !strings.Contains(x.Steps[0].Why, "cannot be read") {
			t.Errorf("%+v: %+v, want it unknown", step, x.Steps)
		}
	}
}
