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
	crowd = Width * 3 / 4
	// crowdLimit is how long the kill waits for most of them to be in flight.
	crowdLimit = time.Second
	// hesitation spreads the kills over the phases of the work. It is shorter than a mail takes.
	hesitation = 25 * time.Millisecond
	// glance is how often the supervisor looks.
	glance = 2 * time.Millisecond
)

// supervise kills in mid-work, as often as asked, and starts again what it killed. Then it sees that it
// stays up, until ctx ends.
func (s *scenario) supervise(ctx context.Context) error {
	r := rand.New(rand.NewPCG(s.cfg.Seed, 2)) //nolint:gosec // when to kill, in a demo
	for i := range s.cfg.Kills {
		inFlight, err := s.untilMidWork(ctx, i, r)
		if err != nil {
			return err
		}
		v := s.victim(i)
		if err := s.strike(ctx, v); err != nil {
			return err
		}
		select {
		case s.kills <- kill{v, inFlight}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	s.gate.open(s.cfg.Operations)
	select {
	case <-s.serviceEnded():
		return s.service.Err()
	case <-s.proxyEnded():
		return s.proxy.Err()
	case <-ctx.Done():
		return nil
	}
}

// untilMidWork waits for the moment of kill i, and returns how many operations are in flight at it.
func (s *scenario) untilMidWork(ctx context.Context, i int, r *rand.Rand) (int, error) {
	begin, end := s.cfg.Operations*i/(s.cfg.Kills+1), s.cfg.Operations*(i+1)/(s.cfg.Kills+1)
	together := max(1, min(crowd, (end-begin)/2))
	// Most of the payments up to this kill are made one after the other, and the last of them together,
	// when there are places for them: those of the kill before have waited for their lease to lapse.
	s.gate.open(end - together)
	places := func() bool {
		n := s.client.Counts()
		return n.Begun >= end-together && n.Waiting <= Width-together
	}
	if err := s.await(ctx, 0, places); err != nil {
		return 0, err
	}
	s.gate.open(end)
	if err := s.await(ctx, crowdLimit, func() bool { return s.network.InFlight() >= (2*together+2)/3 }); err != nil {
		return 0, err
	}
	if i%2 == 0 { // while mails are being sent: the part that no transaction covers
		if err := s.await(ctx, crowdLimit, func() bool { return s.mailsInWork(ctx) >= (together+1)/2 }); err != nil {
			return 0, err
		}
	}
	pause := time.Duration(1 + r.Int64N(int64(hesitation)))
	if err := s.await(ctx, pause, func() bool { return false }); err != nil {
		return 0, err
	}
	return s.atWork(ctx)
}

// mailsInWork asks the gateway; a gateway that does not answer is noticed elsewhere.
func (s *scenario) mailsInWork(ctx context.Context) int {
	n, err := s.mailer.Busy(ctx)
	if err != nil {
		return 0
	}
	return n
}

// atWork waits until anything is in flight. Where all that has begun is over, it lets another payment begin.
func (s *scenario) atWork(ctx context.Context) (int, error) {
	for {
		var inFlight int
		var over bool
		err := s.await(ctx, 0, func() bool {
			allowed, _ := s.gate.state()
			n := s.client.Counts()
			over = n.Begun == allowed && n.Waiting == 0
			inFlight = s.network.InFlight()
			return over || inFlight > 0
		})
		if err != nil || inFlight > 0 {
			return inFlight, err
		}
		allowed, _ := s.gate.state()
		if allowed == s.cfg.Operations {
			return 0, errors.New("there was no work left to interrupt: give more --operations, or fewer --kills")
		}
		s.gate.open(allowed + 1)
	}
}

// await waits until ok, but no longer than a limit, if there is one.
func (s *scenario) await(ctx context.Context, limit time.Duration, ok func() bool) error {
	tick := time.NewTicker(glance)
	defer tick.Stop()
	var enough <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		enough = timer.C
	}
	for !ok() {
		select {
		case <-tick.C:
		case <-enough:
			return nil
		case <-s.serviceEnded():
			return s.service.Err()
		case <-s.proxyEnded():
			return s.proxy.Err()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
