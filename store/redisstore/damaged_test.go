package redisstore_test

import (
	"errors"
	"reflect"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/redisstore"
	"github.com/everonce/everonce/store/transition"
)

// Each byte of a record, damaged: the script judges what stands there as whoever reads it does. What no version has written is taken over by
// nobody and stays as it is; of all else becomes what package transition makes of it.
func TestADamagedRecordIsJudgedAsItIsRead(t *testing.T) {
	t.Parallel()
	client := newClient(t, serverURL(t))
	s := newStore(t, client, nil)
	ctx := t.Context()
	end := func(rec *everonce.Record, state everonce.State) {
		_, err := s.Release(ctx, releaseOf(rec, state))
		noErr(t, err)
	}
	const stepCount = 61 // of 2 bytes: what is missing of the steps the claim tells apart
	for name, c := range map[string]struct {
		take   everonce.TakeOver
		expire bool
		spoil  func(rec *everonce.Record)
	}{
		"claimed": {take: everonce.TakeForced, expire: true, spoil: func(*everonce.Record) {}},
		"lapsed":  {take: everonce.TakeAbandoned, spoil: func(rec *everonce.Record) { backdate(t, client, s, rec.ID, lease) }},
		"over": {take: everonce.TakeNone, expire: true, spoil: func(rec *everonce.Record) {
			end(rec, everonce.StateReleased)
			backdate(t, client, s, rec.ID, life.Total())
		}},
		"released":  {take: everonce.TakeNone, spoil: func(rec *everonce.Record) { end(rec, everonce.StateReleased) }},
		"abandoned": {take: everonce.TakeToSettle, spoil: func(rec *everonce.Record) { end(rec, everonce.StateAbandoned) }},
		"completed": {take: everonce.TakeNone, spoil: func(rec *everonce.Record) {
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
			rec := decided(t, res, err, everonce.DecideClaimed).Record
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
					req.Nonce, req.Take = everonce.NewNonce(), c.take
					res, err := s.Claim(ctx, req)
					after, readErr := command(t, client, "GET", key).ToString()
					noErr(t, readErr)
					rec, unread := redisstore.Decode(req.ID, text)
					if unread != nil {
						corrupt++
						if !errors.Is(err, everonce.ErrCorruptRecord) || after != text {
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
