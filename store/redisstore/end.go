package redisstore

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/everonce/everonce/driver"
)

// MaxResult is the largest result of an operation or step, in bytes. The server holds it in memory, and blocks while
// it copies it.
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

// Complete implements [driver.Store]: one call of the server.
func (s *Store) Complete(ctx context.Context, req driver.CompleteRequest) (res driver.CompleteResult, err error) {
	r := &req.Result
	if len(r.Data) > MaxResult || len(r.Codec)+len(r.Summary) > maxTexts {
		return res, tooLong("complete")
	}
	c := call{script: completeScript, keys: s.keys(&req.ID)}
	var stack [256]byte
	b := appendHolder(stack[:0], req.Token, &req.Nonce)
	b = append(b, driver.FormatVersion, byte(driver.StateCompleted), byte(r.Kind))
	b = appendMicros(b, 0)
	b = appendMicros(b, req.Lifetime.Retention)
	b = appendMicros(b, req.Lifetime.Total())
	b = append(b, 0, 0) // no unknown step
	b = appendText(b, r.Codec)
	b = appendText(b, r.Summary)
	c.with(string(b), view(r.Data))
	return res, s.attempt(ctx, "complete", &c)
}

// Release implements [driver.Store]: one call of the server.
func (s *Store) Release(ctx context.Context, req driver.ReleaseRequest) (res driver.ReleaseResult, err error) {
	if len(req.Scope)+len(req.Name)+len(req.ErrorClass)+len(req.Step) > maxTexts {
		return res, tooLong("release")
	}
	c := call{script: releaseScript, keys: s.keys(&req.ID)}
	token := ""
	if req.Token != 0 {
		token = holder(req.Token, &req.Nonce)[:8]
	}
	expire := "0"
	if req.ExpireUnsettled {
		expire = "1"
	}
	life := req.Lifetime.Total()
	left := fresh{
		nonce: &req.Nonce, state: driver.StateReleased, life: life, fingerprint: new(driver.Fingerprint),
		scope: req.Scope, name: req.Name, class: req.ErrorClass,
	}
	msg, err := s.write(ctx, c.with(token, string(req.Nonce[:]), digit(req.State), string(appendText(nil, req.ErrorClass)), req.Step,
		micros(life), expire, string(left.append(nil))))
	if err != nil {
		return res, wrapError("release", err)
	}
	word, err := msg.ToInt64()
	if res.Superseded = err == nil && word == wordSuperseded; res.Superseded {
		return res, nil
	}
	return res, said("release", word, err)
}

// Renew implements [driver.Store]: one call of the server.
func (s *Store) Renew(ctx context.Context, req driver.RenewRequest) (res driver.RenewResult, err error) {
	c := call{script: renewScript, keys: s.keys(&req.ID)}
	var stack [24]byte
	b := appendMicros(stack[:0], req.Lease)
	b = appendMicros(b, 0)
	b = appendMicros(b, req.Lifetime.Total())
	return res, s.attempt(ctx, "renew", c.with(holder(req.Token, &req.Nonce), string(b), micros(max(req.Lifetime.Total(), req.Lease))))
}

// attempt sends a script that writes for the attempt which holds the record.
func (s *Store) attempt(ctx context.Context, what string, c *call) error {
	msg, err := s.write(ctx, c)
	if err != nil {
		return wrapError(what, err)
	}
	word, err := msg.ToInt64()
	return said(what, word, err)
}

// said makes an error of what a script has answered.
func said(what string, word int64, err error) error {
	switch {
	case err != nil:
		return wrapError(what, errAnswer)
	case word == wordDone:
		return nil
	case word == wordLost:
		return wrapError(what, driver.ErrLeaseLost)
	case word == wordNewer:
		return wrapError(what, driver.ErrNewerRecord)
	case word == wordTooMany:
		return wrapError(what, fmt.Errorf("%w: an operation has at most %d steps", driver.ErrTooLarge, driver.MaxSteps))
	}
	return wrapError(what, errAnswer)
}

// appendHolder appends token and nonce as they stand in the record: the scripts compare bytes, and make no number of
// a token.
func appendHolder(b []byte, token driver.Token, nonce *driver.Nonce) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(token)) //nolint:gosec // positive
	return append(b, nonce[:]...)
}

func holder(token driver.Token, nonce *driver.Nonce) string {
	var stack [24]byte
	return string(appendHolder(stack[:0], token, nonce))
}
