package redisstore_test

import (
	"errors"
	"reflect"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/transition"
	"github.com/everonce/everonce/store/redisstore"
)

// Each byte of a record, damaged: the script judges the bytes as the reader does. A record that no version has written
// is never taken over and is left unchanged; every other becomes what package transition makes of it.
func TestADamagedRecordIsJudgedAsItIsRead(t *testing.T) {
	t.Parallel()
	client := newClient(t, serverURL(t))
	s := newStore(t, client, nil)
	ctx := t.Context()
	end := func(rec *driver.Record, state driver.State) {
		_, err := s.Release(ctx, releaseOf(rec, state))
		noErr(t, err)
	}
	const stepCount = 61 // of 2 bytes: what is missing of the steps the claim tells apart
	for name, c := range map[string]struct {
		take   driver.TakeOver
		expire bool
		spoil  func(rec *driver.Record)
	}{
		"claimed": {take: driver.TakeForced, expire: true, spoil: func(*driver.Record) {}},
		"lapsed":  {take: driver.TakeAbandoned, spoil: func(rec *driver.Record) { backdate(t, client, s, rec.ID, lease) }},
		"over": {take: driver.TakeNone, expire: true, spoil: func(rec *driver.Record) {
			end(rec, driver.StateReleased)
			backdate(t, client, s, rec.ID, life.Total())
		}},
		"released":  {take: driver.TakeNone, spoil: func(rec *driver.Record) { end(rec, driver.StateReleased) }},
		"abandoned": {take: driver.TakeToSettle, spoil: func(rec *driver.Record) { end(rec, driver.StateAbandoned) }},
		"completed": {take: driver.TakeNone, spoil: func(rec *driver.Record) {
			_, err := s.Complete(ctx, completionOf(rec, "v"))
			noErr(t, err)
			command(t, client, "DEL", redisstore.KeyOf(s, rec.ID)+":v") // by which most claims are answered
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := claimOf(everonce.Key{Scope: "damaged", ID: name})
			req.ExpireUnsettled = c.expire
			res, err := s.Claim(ctx, req)
			rec := decided(t, res, err, driver.DecideClaimed).Record
			c.spoil(&rec)
			key := redisstore.KeyOf(s, rec.ID)
			whole, err := command(t, client, "GET", key).ToString()
			noErr(t, err)
			corrupt := 0
			for i := range whole {
				if i == stepCount || i == stepCount+1 {
					continue
				}
				for _, b := range []byte{whole[i] ^ 1, whole[i] ^ 0x80} {
					text := whole[:i] + string([]byte{b}) + whole[i+1:]
					command(t, client, "SET", key, text)
					req.Nonce, req.Take = driver.NewNonce(), c.take
					res, err := s.Claim(ctx, req)
					after, readErr := command(t, client, "GET", key).ToString()
					noErr(t, readErr)
					rec, unread := redisstore.Decode(req.ID, text)
					if unread != nil {
						corrupt++
						if !errors.Is(err, driver.ErrCorruptRecord) || after != text {
							t.Errorf("byte %d is %#x: %v, but the claim says %v, %v", i, b, unread, res.Decision, err)
						}
						continue
					}
					next, want, wantErr := transition.Claim(&rec, req, res.Now)
					if !errors.Is(err, wantErr) || err == nil && res.Decision != want.Decision {
						t.Errorf("byte %d is %#x: %v, %v; want %v, %v", i, b, res.Decision, err, want.Decision, wantErr)
						continue
					}
					if next == nil {
						if after != text {
							t.Errorf("byte %d is %#x: it was written over", i, b)
						}
						continue
					}
					if got, err := redisstore.Decode(req.ID, after); err != nil || !reflect.DeepEqual(got, *next) {
						t.Errorf("byte %d is %#x: written is\n%+v, %v; want\n%+v", i, b, got, err, *next)
					}
				}
			}
			if corrupt < 50 {
				t.Errorf("only %d of the damaged records are corrupt", corrupt)
			}
		})
	}
}

// Nor is it forgotten with its tenant, counted as what it says it is, or written over by a release that knows its nonce
// alone.
func TestADamagedRecordIsNeitherForgottenNorCounted(t *testing.T) {
	t.Parallel()
	client := newClient(t, serverURL(t))
	ctx := t.Context()
	const sign = 0x80
	for what, c := range map[string]struct {
		ended driver.State // 0: it runs
		at    int
		flip  byte
		texts bool // which are not counted by
	}{
		"a live claim with a lease before all others":  {at: 42, flip: sign},
		"a live claim with an impossible token":        {at: 15, flip: sign},
		"a live claim with other texts":                {at: 123, flip: 1, texts: true},
		"released, with a lifetime before all others":  {ended: driver.StateReleased, at: 58, flip: sign},
		"abandoned, with a lifetime before all others": {ended: driver.StateAbandoned, at: 58, flip: sign},
	} {
		s := newStore(t, client, nil)
		rec := claimed(t, s, everonce.Key{Scope: "damaged", ID: "1"})
		if c.ended != 0 {
			_, err := s.Release(ctx, releaseOf(&rec, c.ended))
			noErr(t, err)
		}
		key := redisstore.KeyOf(s, rec.ID)
		text, err := command(t, client, "GET", key).ToString()
		noErr(t, err)
		damaged := text[:c.at] + string([]byte{text[c.at] ^ c.flip}) + text[c.at+1:]
		command(t, client, "SET", key, damaged)
		if h, err := s.Health(ctx, driver.HealthRequest{}); err != nil || !c.texts && h.Unreadable != 1 || h.Unreadable+h.Claimed+h.Abandoned+h.Released+h.Completed != 1 {
			t.Errorf("%s: it is counted as %+v, %v", what, h, err)
		}
		if res, err := s.DeleteScope(ctx, driver.DeleteScopeRequest{Scope: rec.Scope}); res.Records != 0 || !errors.Is(err, driver.ErrCorruptRecord) {
			t.Errorf("%s: deleted %+v, %v; want ErrCorruptRecord", what, res, err)
		}
		for nonce, n := range map[string]driver.Nonce{"its": rec.Nonce, "another": driver.NewNonce()} {
			release := releaseOf(&rec, driver.StateReleased)
			release.Token, release.Nonce = 0, n
			if _, err := s.Release(ctx, release); !errors.Is(err, driver.ErrCorruptRecord) {
				t.Errorf("%s: a release by %s nonce: %v, want ErrCorruptRecord", what, nonce, err)
			}
		}
		if after, err := command(t, client, "GET", key).ToString(); err != nil || after != damaged {
			t.Errorf("%s: it was written over, %v", what, err)
			command(t, client, "SET", key, damaged)
		}
	}
}
