package drivertest

import (
	"context"
	"sync"

	"github.com/everonce/everonce/driver"
)

// A tried write leaves no record: none is listed, counted or purged, and existing records are untouched, however
// many callers try at once.
func checkWrites(e *env) {
	checkWrite := func(ctx context.Context) error {
		return errOf(e.s.(driver.WriteChecker).CheckWrite(ctx, driver.CheckWriteRequest{}))
	}
	a := e.claimed(claimReq(e.key()))
	before := e.look(a.req.ID).Record
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { e.is("CheckWrite", checkWrite(e.ctx), nil) })
	}
	wg.Wait()
	if err := checkWrite(ended(e.ctx)); err != nil {
		e.failure("CheckWrite", err)
	}
	e.is("CheckWrite, again", checkWrite(e.ctx), nil)
	if e.caps.Lister {
		if recs := e.listed(driver.ListRequest{}); len(recs) != 1 {
			e.Errorf("%d records are listed afterwards, want 1", len(recs))
		}
	}
	if h, ok := driver.PowerOf[driver.HealthChecker](e.s); ok {
		if got, err := h.Health(e.ctx, driver.HealthRequest{}); err != nil || got.Claimed != 1 || got.Abandoned+got.Released+got.Completed+got.Unreadable != 0 {
			e.Errorf("afterwards there are %+v, %v; want one claim", got, err)
		}
	}
	if res, err := e.s.Purge(e.ctx, driver.PurgeRequest{}); err != nil || res.Records+res.Results != 0 {
		e.Errorf("a purge afterwards: %+v, %v", res, err)
	}
	e.same("the record", e.look(a.req.ID).Record, before)
	a.completed("done")
}
