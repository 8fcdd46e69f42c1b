package demo

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

const (
	// crowd is how many payments begin together before a kill, at the most: enough to be caught in all
	// phases of their work, and fewer than the client's places.
	crowd = width * 3 / 4
	// crowdLimit is how long the kill waits for most of them to be in flight.
	crowdLimit = time.Second
	// hesitation spreads the kills over the phases of the work. It is shorter than a mail takes.
	hesitation = 25 * time.Millisecond
	// glance is how often the supervisor looks.
	glance = 2 * time.Millisecond
)

// victim is what a kill kills.
type victim string

const (
	theService victim = "the service"
	theProxy   victim = "the proxy"
	theTwo     victim = "the service and the proxy"
)

// supervise kills in mid-work, as often as asked, and starts again what it killed. It lets the client begin payments,
// so many that every kill finds work to interrupt, however few there are.
func (r *run) supervise(ctx context.Context) error {
	random := rand.New(rand.NewPCG(r.config.Seed, 2)) //nolint:gosec // when to kill, in a demo
	for i := range r.config.Kills {
		inFlight, err := r.untilMidWork(ctx, i, random)
		if err != nil {
			return err
		}
		v := theService
		if r.viaProxy() { // they take turns
			v = [...]victim{theService, theProxy, theTwo}[i%3]
		}
		if err := r.kill(ctx, v); err != nil {
			return err
		}
		r.outcome.inFlight = append(r.outcome.inFlight, inFlight)
		r.view.killed(i+1, r.config.Kills, v, inFlight)
	}
	r.allow(r.config.Operations)
	close(r.queue)
	return nil
}

// kill kills, and starts again what it killed.
func (r *run) kill(ctx context.Context, v victim) error {
	if v != theService {
		r.proxy.Kill()
	}
	if v != theProxy {
		r.service.Kill()
		if err := r.startService(ctx); err != nil {
			return err
		}
	}
	if v != theService {
		return r.startProxy(ctx)
	}
	return nil
}

// allow lets the client begin the first n payments.
func (r *run) allow(n int) {
	for ; r.queued < n; r.queued++ {
		r.queue <- r.payments[r.queued]
	}
}

// untilMidWork waits for the moment of kill i, and returns how many operations are in flight at it.
func (r *run) untilMidWork(ctx context.Context, i int, random *rand.Rand) (int, error) {
	begin, end := r.config.Operations*i/(r.config.Kills+1), r.config.Operations*(i+1)/(r.config.Kills+1)
	together := max(1, min(crowd, (end-begin)/2))
	// Most of the payments up to this kill are made one after the other, and the last of them together, when places are
	// free: payments of the previous kill have waited for their lease to lapse.
	r.allow(end - together)
	places := func() bool {
		n := r.client.Counts()
		return n.Begun >= end-together && n.Waiting <= width-together
	}
	if err := await(ctx, 0, places); err != nil {
		return 0, err
	}
	r.allow(end)
	if err := await(ctx, crowdLimit, func() bool { return r.network.InFlight() >= (2*together+2)/3 }); err != nil {
		return 0, err
	}
	if i%2 == 0 { // while mails are being sent: the part that no transaction covers
		sending := func() bool {
			n, err := r.gateway.Busy(ctx) // a gateway that does not answer is noticed elsewhere
			return err == nil && n >= (together+1)/2
		}
		if err := await(ctx, crowdLimit, sending); err != nil {
			return 0, err
		}
	}
	pause := time.Duration(1 + random.Int64N(int64(hesitation)))
	if err := await(ctx, pause, func() bool { return false }); err != nil {
		return 0, err
	}
	return r.untilInFlight(ctx)
}

// untilInFlight waits until anything is in flight. Where all that has begun is over, it lets another payment begin.
func (r *run) untilInFlight(ctx context.Context) (inFlight int, err error) {
	for {
		err := await(ctx, 0, func() bool {
			n := r.client.Counts()
			inFlight = r.network.InFlight()
			return inFlight > 0 || n.Begun == r.queued && n.Waiting == 0
		})
		if err != nil || inFlight > 0 {
			return inFlight, err
		}
		if r.queued == r.config.Operations {
			return 0, errors.New("there was no work left to interrupt: give more --operations, or fewer --kills")
		}
		r.allow(r.queued + 1)
	}
}

// await waits until ok, but no longer than a limit, if there is one.
func await(ctx context.Context, limit time.Duration, ok func() bool) error {
	for started := time.Now(); !ok() && (limit == 0 || time.Since(started) < limit); {
		select {
		case <-time.After(glance):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
