package pgxstore_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// This version does not judge a record that a newer version wrote, even where the attempt that asks still has token and
// nonce.
func TestARecordOfANewerVersionIsLeftAlone(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testNewerRecord[pgx.Tx], testNewerRecord[*sql.Tx])
}

func testNewerRecord[Tx any](t *testing.T, h *handle[Tx]) {
	for what, change := range map[string]string{
		"unchanged":                      "state = state",
		"in a state that is not":         "state = 77, lease_until = NULL, nonce = '\\x01'",
		"abandoned":                      "state = 3, lease_until = NULL",
		"released":                       "state = 2, lease_until = NULL",
		"completed, by a kind not known": "state = 4, lease_until = NULL, result_kind = 9, result_until = now, purge_at = now",
	} {
		change = strings.ReplaceAll(change, "= now", "= updated_at + 3600000000")
		t.Run(what, func(t *testing.T) { testSpoiled(t, h, "format = 99, "+change, driver.ErrNewerRecord, "newer") })
	}
}

// A record that no version has written is not judged either, and remains for an operator to look at.
func TestACorruptRecordIsNotJudged(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testCorruptRecord[pgx.Tx], testCorruptRecord[*sql.Tx])
}

func testCorruptRecord[Tx any](t *testing.T, h *handle[Tx]) {
	for what, damage := range map[string]string{
		"a state that is not":            "state = 77",
		"a state behind the last byte":   "state = 257",
		"a short nonce":                  "nonce = '\\x00'",
		"a long nonce":                   "nonce = nonce || '\\x00'",
		"done without a result":          "state = 4, lease_until = NULL",
		"an impossible token":            "token = 0",
		"a result of a kind that is not": "state = 4, lease_until = NULL, result_kind = 77",
		"no version at all":              "format = 0, state = 3",
		"over before all times":          "state = 3, lease_until = NULL, purge_at = -1, due_at = 1",
		"a time that no clock shows":     "state = 3, lease_until = 9223372036854775807",
	} {
		t.Run(what, func(t *testing.T) { testSpoiled(t, h, damage, driver.ErrCorruptRecord, "corrupt") })
	}
}

// testSpoiled lets an attempt begin, changes its record behind its back, and expects every call of the store, and of
// the engine, to refuse it for that reason and to leave it unchanged.
func testSpoiled[Tx any](t *testing.T, h *handle[Tx], change string, reason error, says string) {
	ctx := t.Context()
	key := everonce.Key{Scope: testKey.Scope, ID: random(t)}
	res, err := h.store.Claim(ctx, claimOf(key))
	rec := decided(t, res, err, driver.DecideClaimed).Record
	mustExec(t, "UPDATE "+h.record()+" SET "+change+" WHERE id = $1", rec.ID[:])
	row := func() (text string) {
		t.Helper()
		noErr(t, admin(t).QueryRow(ctx, "SELECT r::text FROM "+h.record()+" AS r WHERE id = $1", rec.ID[:]).Scan(&text))
		return text
	}
	before := row()

	for what, err := range spoiledCalls(ctx, t, h, key, &rec) {
		if !errors.Is(err, reason) || !errors.Is(err, driver.ErrStore) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %v", what, err, reason)
		}
	}

	// A transaction that did not look first finds out at its end, and takes nothing with it.
	tx, _, err := h.store.Begin(ctx, driver.BeginRequest{})
	noErr(t, err)
	noErr(t, h.effect(ctx, tx.Tx(), key.ID))
	late := txClaimOf(key)
	done := completionOf(&driver.Record{ID: late.ID, Nonce: late.Nonce}, "late")
	if _, err := tx.Commit(ctx, driver.CommitRequest{Record: &late, Complete: &done}); !errors.Is(err, driver.ErrConflict) {
		t.Errorf("an optimistic commit: %v, want ErrConflict", err)
	}

	guarded, err := everonce.NewReceiver(h.store, everonce.Reexecute, nil)
	noErr(t, err)
	transactional, err := everonce.NewTxReceiver(h.store, nil)
	noErr(t, err)
	work := func() (int, error) {
		t.Error("the work ran")
		return 0, nil
	}
	_, doErr := everonce.Do(ctx, guarded, key, func(context.Context, *everonce.Attempt) (int, error) { return work() })
	_, transactErr := everonce.Transact(ctx, transactional, key, func(context.Context, Tx) (int, error) { return work() })
	_, optimisticErr := everonce.Transact(ctx, transactional, key, func(context.Context, Tx) (int, error) { return work() }, everonce.Optimistic())
	own, err := h.begin(ctx, sql.LevelDefault)
	noErr(t, err)
	_, doTxErr := everonce.DoTx(ctx, own, transactional, key, func(context.Context) (int, error) { return work() })
	noErr(t, h.effect(ctx, own, "beside "+key.ID)) // the caller's transaction is alive
	noErr(t, h.commit(ctx, own))
	_, lookupErr := everonce.Lookup[int](ctx, guarded, key)
	for what, err := range map[string]error{
		"Do": doErr, "Transact": transactErr, "Transact, optimistic": optimisticErr, "DoTx": doTxErr, "Lookup": lookupErr,
		"Settle": guarded.Settle(ctx, key, everonce.Settlement{Verdict: everonce.SettleNotDone, Force: true}),
	} {
		if !errors.Is(err, driver.ErrStore) || !errors.Is(err, reason) {
			t.Errorf("%s: %v, want %v", what, err, reason)
		}
	}

	_, err = h.store.Purge(ctx, driver.PurgeRequest{Limit: 1000})
	noErr(t, err)
	if after := row(); after != before {
		t.Errorf("the record was\n%s and is\n%s", before, after)
	}
	if n := h.effects(t, key.ID); n != 0 {
		t.Errorf("%d effects", n)
	}
	if n := h.effects(t, "beside "+key.ID); n != 1 {
		t.Errorf("%d effects of what else the caller's transaction held, want 1", n)
	}
	_, err = h.store.List(ctx, driver.ListRequest{Scope: key.Scope})
	noErr(t, err) // one bad record must not hide the others
	_, err = h.store.Health(ctx, driver.HealthRequest{})
	noErr(t, err)
}

// spoiledCalls are the calls that name a key, by the attempt that has its token and nonce and by another.
func spoiledCalls[Tx any](ctx context.Context, t *testing.T, h *handle[Tx], key everonce.Key, rec *driver.Record) map[string]error {
	t.Helper()
	errs := map[string]error{}
	for what, take := range map[string]driver.TakeOver{
		"Claim": driver.TakeNone, "Claim of the abandoned": driver.TakeAbandoned, "Claim to settle": driver.TakeToSettle, "Claim by force": driver.TakeForced,
	} {
		req := claimOf(key)
		req.Take = take
		_, errs[what] = h.store.Claim(ctx, req)
	}
	again := claimOf(key)
	again.Nonce = rec.Nonce
	_, errs["Claim again"] = h.store.Claim(ctx, again)
	_, errs["Complete"] = h.store.Complete(ctx, completionOf(rec, "v"))
	release := driver.ReleaseRequest{ID: rec.ID, Scope: key.Scope, Name: key.ID, Token: rec.Token, Nonce: rec.Nonce, State: driver.StateReleased, Lifetime: everonce.ForWeb()}
	_, errs["Release"] = h.store.Release(ctx, release)
	release.Token = 0
	_, errs["Release by nonce"] = h.store.Release(ctx, release)
	renew := driver.RenewRequest{ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Lease: again.Lease, Lifetime: everonce.ForWeb()}
	_, errs["Renew"] = h.store.Renew(ctx, renew)
	step := driver.SaveStepRequest{ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Step: driver.StepRecord{Name: "mail", State: driver.StepDone, Attempt: 1, Result: driver.SavedResult{Kind: driver.ResultElided}}}
	_, errs["SaveStep"] = h.store.SaveStep(ctx, step)
	_, errs["Get"] = h.store.Get(ctx, driver.GetRequest{ID: rec.ID})
	_, errs["Get, brief"] = h.store.Get(ctx, driver.GetRequest{ID: rec.ID, Brief: true})

	claim := txClaimOf(key)
	_, _, errs["Begin"] = h.store.Begin(ctx, driver.BeginRequest{Claim: &claim})
	tx, _, err := h.store.Begin(ctx, driver.BeginRequest{})
	noErr(t, err)
	_, errs["Claim in a transaction"] = tx.Claim(ctx, txClaimOf(key))
	_, errs["Get in a transaction"] = tx.Get(ctx, driver.GetRequest{ID: rec.ID})
	_, errs["Renew in a transaction"] = tx.Renew(ctx, renew)
	noErr(t, h.effect(ctx, tx.Tx(), key.ID))
	_, errs["the commit of a step"] = tx.Commit(ctx, driver.CommitRequest{SaveStep: &step})
	return errs
}

// Nor are its steps read, which may be in a state that this version does not know. Where it is gone by time the key is
// new, and the token grows over what the newer version wrote.
func TestTheStepsOfANewerVersionAreNotJudged(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testNewerSteps[pgx.Tx], testNewerSteps[*sql.Tx])
}

func testNewerSteps[Tx any](t *testing.T, h *handle[Tx]) {
	ctx := t.Context()
	res, err := h.store.Claim(ctx, claimOf(testKey))
	rec := decided(t, res, err, driver.DecideClaimed).Record
	step := driver.StepRecord{Name: "mail", State: driver.StepOpen, Attempt: 1}
	_, err = h.store.SaveStep(ctx, driver.SaveStepRequest{ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Step: step})
	noErr(t, err)
	const token = 1 << 62
	mustExec(t, "UPDATE "+h.record()+" SET format = 99, token = $1", int64(token))
	mustExec(t, "UPDATE "+h.schema+".everonce_step SET state = 99")
	for what, err := range spoiledCalls(ctx, t, h, testKey, &rec) {
		if !errors.Is(err, driver.ErrNewerRecord) {
			t.Errorf("%s: %v, want %v", what, err, driver.ErrNewerRecord)
		}
	}
	_, err = h.store.List(ctx, driver.ListRequest{Scope: testKey.Scope, Steps: true})
	noErr(t, err) // it must not hide the others

	mustExec(t, "UPDATE "+h.record()+" SET lease_until = 1, purge_at = 1, due_at = 1")
	res, err = h.store.Claim(ctx, claimOf(testKey))
	now := decided(t, res, err, driver.DecideClaimed).Record
	if now.Token <= token || now.Attempt != 1 || len(now.Steps) != 0 {
		t.Errorf("claimed anew: token %d, attempt %d, %d steps", now.Token, now.Attempt, len(now.Steps))
	}
}

// A step that cannot be read hides neither its operation's other steps nor other records' steps: it is listed by its
// name.
func TestACorruptStepIsListed(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testCorruptStep[pgx.Tx], testCorruptStep[*sql.Tx])
}

func testCorruptStep[Tx any](t *testing.T, h *handle[Tx]) {
	ctx := t.Context()
	for _, id := range []string{"whole", "spoiled"} {
		res, err := h.store.Claim(ctx, claimOf(everonce.Key{Scope: testKey.Scope, ID: id}))
		rec := decided(t, res, err, driver.DecideClaimed).Record
		for _, name := range []string{"one", "two"} {
			_, err := h.store.SaveStep(ctx, driver.SaveStepRequest{
				ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Step: driver.StepRecord{Name: name, State: driver.StepDone, Attempt: 1, Result: driver.SavedResult{Kind: driver.ResultElided}},
			})
			noErr(t, err)
		}
		if id == "spoiled" {
			mustExec(t, "UPDATE "+h.schema+".everonce_step SET state = 77 WHERE id = $1 AND name = 'one'", rec.ID[:])
		}
	}
	page, err := h.store.List(ctx, driver.ListRequest{Steps: true})
	noErr(t, err)
	if len(page.Records) != 2 {
		t.Fatalf("%d of 2 records are listed", len(page.Records))
	}
	for _, rec := range page.Records {
		first := driver.StepDone
		if rec.Name == "spoiled" {
			first = 0
		}
		if s := rec.Steps; len(s) != 2 || s[0].Name != "one" || s[0].State != first || s[1].Name != "two" || s[1].State != driver.StepDone {
			t.Errorf("%s: its steps are listed as %+v", rec.Name, s)
		}
	}
}
