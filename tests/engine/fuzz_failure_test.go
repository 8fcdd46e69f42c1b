package engine

import (
	"context"
	"errors"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// FuzzFailure replays a permanent failure from whatever a store may hold of it. It is a *PermanentError, or
// ErrUndecodable; it never panics, and the operation never runs a second time.
func FuzzFailure(f *testing.F) {
	for _, data := range []string{
		`{"code":"card_declined","message":"no funds","detail":"eyJ0cnkiOiJsYXRlciJ9"}`,
		`{"code":"x","truncated":true}`, `{"code":"x","detail":"not base64"}`, `{"code":7}`, `{"code":"x"} {"code":"y"}`, `{"code":`,
		`{}`, `null`, `[]`, `"text"`, ``, "\x00", "\xff\xfe", `{"code":"\ud800"}`, `{"code":"","message":""}`, `{"CODE":"x","code":null}`,
	} {
		f.Add([]byte(data), "failure/1", []byte("card_declined"))
	}
	f.Add([]byte(`{"code":"x"}`), "", []byte(nil))
	f.Add([]byte(`{"code":"x"}`), "failure/2", []byte("x"))
	f.Add([]byte(nil), "failure/1", []byte(nil))
	f.Fuzz(func(t *testing.T, data []byte, codec string, summary []byte) {
		ctx := t.Context()
		store := memstore.New(nil)
		r, err := everonce.NewReceiver(store, everonce.Reexecute, nil)
		if err != nil {
			t.Fatal(err)
		}
		key := everonce.Key{Scope: "fuzz", ID: "order-7"}
		claim, err := store.Claim(ctx, driver.ClaimRequest{ID: key.RecordID(), Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), Lease: time.Minute, Lifetime: everonce.ForWeb()})
		if err != nil {
			t.Fatal(err)
		}
		_, err = store.Complete(ctx, driver.CompleteRequest{
			ID: claim.Record.ID, Token: claim.Record.Token, Nonce: claim.Record.Nonce, Lifetime: everonce.ForWeb(),
			Result: driver.SavedResult{Kind: driver.ResultFailure, Codec: codec, Data: data, Summary: summary},
		})
		if err != nil {
			t.Fatal(err)
		}
		res, doErr := everonce.Do(ctx, r, key, func(context.Context, *everonce.Attempt) (string, error) {
			t.Error("the operation ran again")
			return "", nil
		})
		failure, ok := errors.AsType[*everonce.PermanentError](doErr)
		switch {
		case res.Value != "":
			t.Errorf("a failure has the value %q", res.Value)
		case errors.Is(doErr, everonce.ErrUndecodable):
			if ok || res.Outcome == everonce.Rejected {
				t.Errorf("undecodable, and %+v, %v", res, doErr)
			}
		case !ok || res.Outcome != everonce.Rejected:
			t.Errorf("%+v, %v: want a *PermanentError or ErrUndecodable", res, doErr)
		case !utf8.ValidString(failure.Error()):
			t.Errorf("%q is no text", failure.Error())
		}
		again, lookupErr := everonce.Lookup[string](ctx, r, key)
		if again.Outcome != res.Outcome || (lookupErr == nil) != (doErr == nil) || lookupErr != nil && lookupErr.Error() != doErr.Error() {
			t.Errorf("Lookup answers %+v, %v; Do answered %+v, %v", again, lookupErr, res, doErr)
		}
	})
}
