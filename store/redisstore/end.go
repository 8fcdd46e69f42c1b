package redisstore

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/everonce/everonce"
)

// MaxResult is the largest result that a store takes, in bytes, and the longest that it takes of a step. The
// server holds it in memory, and does nothing else while it copies it.
const MaxResult = 16 << 20

// maxTexts is how much the texts of a record may have together.
const maxTexts = 32 << 10

// The words of the scripts that write for an attempt.
const (
	wordDone = iota
	wordLost
	wordNewer
	wordSuperseded
	wordTooMany
)

// Complete implements [everonce.Store]: one call of the server.
func (s *Store) Complete(ctx context.Context, req everonce.CompleteRequest) (res everonce.CompleteResult, err error) {
	r := &req.Result
	if len(r.Data) > MaxResult || len(r.Codec)+len(r.Summary) > maxTexts {
		return res, tooLong("complete")
	}
	k := s.keys(&req.ID)
	var stack [256]byte
	end := append(stack[:0], 0, 0) // no unknown step
	end = appendText(end, r.Codec)
	end = appendText(end, r.Summary)
	return res, s.attempt(ctx, "complete", completeScript, &k,
		holder(req.Token, &req.Nonce), micros(req.Lifetime.Retention), micros(req.Lifetime.Total()), digit(r.Kind), string(end), view(r.Data), s.touch)
}

// Release implements [everonce.Store]: one call of the server.
func (s *Store) Release(ctx context.Context, req everonce.ReleaseRequest) (res everonce.ReleaseResult, err error) {
	if len(req.Scope)+len(req.Name)+len(req.ErrorClass)+len(req.Step) > maxTexts {
		return res, tooLong("release")
	}
	k := s.keys(&req.ID)
	token := ""
	if req.Token != 0 {
		token = holder(req.Token, &req.Nonce)[:8]
	}
	expire := "0"
	if req.ExpireUnsettled {
		expire = "1"
	}
	msg, err := s.write(ctx, releaseScript, &k, token, string(req.Nonce[:]), digit(req.State), string(appendText(nil, req.ErrorClass)), req.Step,
		micros(req.Lifetime.Total()), expire, string(appendFresh(nil, &everonce.Fingerprint{}, req.Scope, req.Name, "", req.ErrorClass)), s.touch)
	if err != nil {
		return res, failed("release", err)
	}
	word, err := msg.ToInt64()
	if res.Superseded = err == nil && word == wordSuperseded; res.Superseded {
		return res, nil
	}
	return res, said("release", word, err)
}

// Renew implements [everonce.Store]: one call of the server.
func (s *Store) Renew(ctx context.Context, req everonce.RenewRequest) (res everonce.RenewResult, err error) {
	k := s.keys(&req.ID)
	return res, s.attempt(ctx, "renew", renewScript, &k, holder(req.Token, &req.Nonce), micros(req.Lease), micros(req.Lifetime.Total()))
}

// attempt sends a script that writes for the attempt which holds the record.
func (s *Store) attempt(ctx context.Context, what string, sc *script, k *keys, args ...string) error {
	msg, err := s.write(ctx, sc, k, args...)
	if err != nil {
		return failed(what, err)
	}
	word, err := msg.ToInt64()
	return said(what, word, err)
}

// said makes an error of what a script has answered.
func said(what string, word int64, err error) error {
	switch {
	case err != nil:
		return failed(what, errAnswer)
	case word == wordDone:
		return nil
	case word == wordLost:
		return failed(what, everonce.ErrLeaseLost)
	case word == wordNewer:
		return failed(what, everonce.ErrNewerRecord)
	case word == wordTooMany:
		return failed(what, fmt.Errorf("%w: an operation has at most %d steps", everonce.ErrTooLarge, everonce.MaxSteps))
	}
	return failed(what, errAnswer)
}

// holder is token and nonce as they stand in the record: the scripts compare bytes, and make no number of a token.
func holder(token everonce.Token, nonce *everonce.Nonce) string {
	var b [24]byte
	binary.LittleEndian.PutUint64(b[:], uint64(token)) //nolint:gosec // positive
	copy(b[8:], nonce[:])
	return string(b[:])
}
