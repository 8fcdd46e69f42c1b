package redisstore

import (
	"context"
	"strconv"

	"github.com/everonce/everonce/driver"
)

// SaveStep implements [driver.Store]: one call of the server.
func (s *Store) SaveStep(ctx context.Context, req driver.SaveStepRequest) (res driver.SaveStepResult, err error) {
	r := &req.Step.Result
	if len(r.Data) > MaxResult || len(r.Codec)+len(r.Summary) > maxTexts {
		return res, tooLong("save step")
	}
	c := call{script: saveStepScript, keys: s.keys(&req.ID)}
	b := make([]byte, 0, 64+len(r.Codec)+len(r.Summary)+len(r.Data))
	b = append(b, byte(r.Kind))
	b = appendText(b, r.Codec)
	b = appendText(b, r.Summary)
	b = append(b, r.Data...)
	return res, s.attempt(ctx, "save step", c.with(holder(req.Token, &req.Nonce), req.Step.Name, digit(req.Step.State),
		strconv.Itoa(req.Step.Attempt), view(b), micros(req.Lease), micros(req.Lifetime.Total()), micros(max(req.Lifetime.Total(), req.Lease)),
		strconv.Itoa(driver.MaxSteps)))
}
