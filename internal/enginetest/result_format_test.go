package enginetest

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// A result is saved in these bytes, under these names of codecs, and what was saved so is replayed. None of it is
// ever changed.
func TestFormatOfResults(t *testing.T) {
	type receipt struct {
		ID    string
		Cents int64 `json:"cents"`
	}
	checkFormat(t, "a value", everonce.JSON(), receipt{"r-1", 1 << 60}, nil,
		driver.SavedResult{Kind: driver.ResultValue, Codec: "json", Data: []byte(`{"ID":"r-1","cents":1152921504606846976}`), Summary: []byte("s")})
	checkFormat(t, "bytes", everonce.Raw(), []byte("r-1\x00\xff"), nil,
		driver.SavedResult{Kind: driver.ResultValue, Codec: "raw", Data: []byte("r-1\x00\xff"), Summary: []byte("s")})
	checkFormat(t, "a failure", everonce.JSON(), 0, everonce.Permanent("card_declined", errors.New("no funds <1 €>"), []byte("\x00\xff")),
		driver.SavedResult{
			Kind: driver.ResultFailure, Codec: "failure/1", Summary: []byte("card_declined"),
			Data: []byte(`{"code":"card_declined","message":"no funds \u003c1 €\u003e","detail":"AP8="}`),
		})
	checkFormat(t, "a failure that was cut", everonce.JSON(), 0, &everonce.PermanentError{Code: "odd", Truncated: true},
		driver.SavedResult{Kind: driver.ResultFailure, Codec: "failure/1", Summary: []byte("odd"), Data: []byte(`{"code":"odd","truncated":true}`)})
}

func checkFormat[T any](t *testing.T, name string, codec everonce.Codec, value T, failure error, stored driver.SavedResult) {
	t.Helper()
	key := keyOf(name)
	do := func(s everonce.Store) (everonce.Result[T], error) {
		t.Helper()
		r, err := everonce.NewReceiver(s, everonce.Refuse, &everonce.Options{Codec: codec})
		if err != nil {
			t.Fatal(err)
		}
		return everonce.Do(t.Context(), r, key, func(context.Context, *everonce.Attempt) (T, error) { return value, failure },
			everonce.WithSummary(func(T) []byte { return []byte("s") }))
	}
	written := memstore.New(nil)
	_, _ = do(written) //nolint:errcheck // it is the failure
	got, err := written.Get(t.Context(), driver.GetRequest{ID: key.RecordID()})
	if err != nil || got.Record.Result.Kind != stored.Kind || got.Record.Result.Codec != stored.Codec ||
		!bytes.Equal(got.Record.Result.Data, stored.Data) || !bytes.Equal(got.Record.Result.Summary, stored.Summary) {
		t.Errorf("%s is saved as %+v (%s), %v, and was as %+v (%s)", name, got.Record.Result, got.Record.Result.Data, err, stored, stored.Data)
	}

	read := memstore.New(nil)
	req := driver.ClaimRequest{ID: key.RecordID(), Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), Lease: time.Minute, Lifetime: everonce.ForWeb()}
	claim, err := read.Claim(t.Context(), req)
	if err == nil {
		_, err = read.Complete(t.Context(), driver.CompleteRequest{ID: req.ID, Token: claim.Record.Token, Nonce: req.Nonce, Result: stored, Lifetime: req.Lifetime})
	}
	if err != nil {
		t.Fatal(err)
	}
	res, err := do(read)
	if failure == nil && (err != nil || res.Outcome != everonce.Replayed || !reflect.DeepEqual(res.Value, value)) {
		t.Errorf("%s is replayed as %v %+v, %v", name, res.Outcome, res.Value, err)
	}
	var same, want *everonce.PermanentError
	if errors.As(failure, &want) && (res.Outcome != everonce.Rejected || !errors.As(err, &same) || !reflect.DeepEqual(*same, *want)) {
		t.Errorf("%s is replayed as %v, %v", name, res.Outcome, err)
	}
}

// The check value that binds a store to an identity secret, and to none.
func TestFormatOfTheIdentity(t *testing.T) {
	for secret, want := range map[string]string{
		"":                                 "0000000000000000000000000000000000000000000000000000000000000000",
		"0123456789abcdef0123456789abcdef": "019bf51f8f27de6172e1d4c746f5b6b7be0a73539c4cfa8917fcfb3e5efe1d04",
	} {
		s, opts := memstore.New(nil), &everonce.Options{}
		if secret != "" {
			opts.IdentitySecret = []byte(secret)
		}
		r, err := everonce.NewReceiver(s, everonce.Refuse, opts)
		if err == nil {
			err = r.Ready(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		if kept, err := s.ReadIdentity(t.Context(), driver.ReadIdentityRequest{}); !kept.Bound || hex.EncodeToString(kept.Check[:]) != want {
			t.Errorf("with the secret %q the store is bound to %x (%v), %v", secret, kept.Check, kept.Bound, err)
		}
	}
}
