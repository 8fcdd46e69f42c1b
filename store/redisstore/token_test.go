package redisstore_test

import (
	"encoding/binary"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/redisstore"
)

// Tokens of 16 digits keep all of them: a Lua number that passes through a text without a format loses the last (rule
// 3). Here the record has a token that is ahead of the server's clock, as after a clock was set back: it grows by one.
func TestTokensKeepAllDigits(t *testing.T) {
	t.Parallel()
	client := newClient(t, serverURL(t))
	s := newStore(t, client, nil)
	rec := claimed(t, s, testKey)
	ahead := driver.Token(time.Now().Add(24*365*time.Hour).UnixMicro())/1000*1000 + 987
	command(t, client, "SETRANGE", redisstore.KeyOf(s, rec.ID), "8", word(uint64(ahead)))
	rec.Token = ahead
	for i := range driver.Token(5) {
		_, err := s.Renew(t.Context(), renewalOf(&rec))
		noErr(t, err)
		_, err = s.SaveStep(t.Context(), stepOf(&rec, "mail"))
		noErr(t, err)
		_, err = s.Release(t.Context(), releaseOf(&rec, driver.StateReleased))
		noErr(t, err)
		rec = claimed(t, s, testKey)
		got, err := s.Get(t.Context(), driver.GetRequest{ID: rec.ID})
		noErr(t, err)
		if want := ahead + 1 + i; rec.Token != want || got.Record.Token != want {
			t.Fatalf("the token is %d, and read %d, want %d", rec.Token, got.Record.Token, want)
		}
	}
	done := claimed(t, s, everonce.Key{Scope: "tokens", ID: "last digit"})
	forged := done
	forged.Token++ // what a rounded number would take for the same
	if _, err := s.Complete(t.Context(), completionOf(&forged, "v")); err == nil {
		t.Error("a token that differs in its last digit is accepted")
	}
	if now := time.Now().UnixMicro(); int64(done.Token) < now-int64(time.Hour/time.Microsecond) || done.Token%1000 == 0 && claimed(t, s, everonce.Key{Scope: "tokens", ID: "another"}).Token%1000 == 0 {
		t.Errorf("the token of a new key is %d: not the clock in microseconds", done.Token)
	}
}

// A record that is gone has a token that is ahead of the server's clock: what follows it has a larger one (rule 3).
func TestTokensGrowOverWhatIsGone(t *testing.T) {
	t.Parallel()
	client := newClient(t, serverURL(t))
	s := newStore(t, client, nil)
	for what, follow := range map[string]func(key everonce.Key) error{
		"a claim": func(key everonce.Key) error {
			_, err := s.Claim(t.Context(), claimOf(key))
			return err
		},
		"a release of a claim that is on its way": func(key everonce.Key) error {
			_, err := s.Release(t.Context(), driver.ReleaseRequest{
				ID: key.RecordID(), Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), State: driver.StateReleased, Lifetime: life,
			})
			return err
		},
	} {
		key := everonce.Key{Scope: "gone", ID: what}
		rec := claimed(t, s, key)
		_, err := s.Release(t.Context(), releaseOf(&rec, driver.StateReleased))
		noErr(t, err)
		ahead := driver.Token(time.Now().Add(24 * 365 * time.Hour).UnixMicro())
		command(t, client, "SETRANGE", redisstore.KeyOf(s, rec.ID), "0", word(1)+word(uint64(ahead))) // last written in 1970
		noErr(t, follow(key))
		got, err := s.Get(t.Context(), driver.GetRequest{ID: rec.ID})
		if err != nil || !got.Found || got.Record.Token <= ahead {
			t.Errorf("%s: the token went from %d to %d, %v", what, ahead, got.Record.Token, err)
		}
		for _, at := range []time.Time{got.Record.CreatedAt, got.Record.UpdatedAt, got.Record.ClaimedAt} { // such a token tells no time
			if claimed := got.Record.Attempt > 0; (claimed || !at.IsZero()) && got.Now.Sub(at).Abs() > time.Minute {
				t.Errorf("%s: the new record has the time %v", what, at)
			}
		}
	}
}

// word is a number as it stands in a record.
func word(n uint64) string { return string(binary.LittleEndian.AppendUint64(nil, n)) }

// Every byte of a fingerprint counts, and of a nonce, at both ends of the places that the scripts compare.
func TestEveryByteIsCompared(t *testing.T) {
	t.Parallel()
	client := newClient(t, serverURL(t))
	s := newStore(t, client, nil)
	for _, done := range []bool{false, true} {
		rec := claimed(t, s, everonce.Key{Scope: "bytes", ID: strconv.FormatBool(done)})
		for _, at := range []int{0, len(rec.Nonce) - 1} {
			other := rec
			other.Nonce[at] ^= 1
			if _, err := s.Renew(t.Context(), renewalOf(&other)); !errors.Is(err, driver.ErrLeaseLost) {
				t.Errorf("with byte %d of another nonce: %v", at, err)
			}
			if _, err := s.Complete(t.Context(), completionOf(&other, "v")); !errors.Is(err, driver.ErrLeaseLost) {
				t.Errorf("with byte %d of another nonce: %v", at, err)
			}
		}
		if done {
			_, err := s.Complete(t.Context(), completionOf(&rec, "v"))
			noErr(t, err)
		}
		for _, at := range []int{0, len(rec.Fingerprint.Sum) - 1} {
			req := claimOf(everonce.Key{Scope: rec.Scope, ID: rec.Name})
			req.Fingerprint.Sum[at] ^= 1
			res, err := s.Claim(t.Context(), req)
			decided(t, res, err, driver.DecideMismatch)
		}
	}
}
