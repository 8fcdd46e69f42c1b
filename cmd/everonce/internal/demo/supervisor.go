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
	// hesitation spreads the kills over the phases of the work.
	hesitation = 40 * time.Millisecond
	// glance is how often the supervisor looks.
	glance = 2 * time.Millisecond
)

// supervise kills the service in mid-work, as often as asked, and starts it again. Then it sees that it
// stays up, until ctx ends.
func (s *scenario) supervise(ctx context.Context) error {
	r := rand.New(rand.NewPCG(s.cfg.Seed, 2)) //nolint:gosec // when to kill, in a demo
	for i := range s.cfg.Kills {
		inFlight, err := s.untilMidWork(ctx, i, r)
		if err != nil {
			return err
		}
		s.service.Kill()
		if s.service, err = s.startService(ctx); err != nil {
			return err
		}
		s.network.Connect(s.service.Addr())
		select {
		case s.kills <- inFlight:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	s.gate.open(s.cfg.Operations)
	select {
	case <-s.service.Done():
		return s.service.Err()
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
	if err := s.await(ctx, nil, places); err != nil {
		return 0, err
	}
	s.gate.open(end)
	limit := time.NewTimer(crowdLimit)
	defer limit.Stop()
	if err := s.await(ctx, limit.C, func() bool { return s.network.InFlight() >= (2*together+2)/3 }); err != nil {
		return 0, err
	}
	pause := time.NewTimer(time.Duration(r.Int64N(int64(hesitation))))
	defer pause.Stop()
	if err := s.await(ctx, pause.C, func() bool { return false }); err != nil {
		return 0, err
	}
	return s.atWork(ctx)
}

// atWork waits until anything is in flight. Where all that has begun is over, it lets another payment begin.
func (s *scenario) atWork(ctx context.Context) (int, error) {
	for {
		var inFlight int
		var over bool
		err := s.await(ctx, nil, func() bool {
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

// await waits until ok, or until enough.
func (s *scenario) await(ctx context.Context, enough <-chan time.Time, ok func() bool) error {
	tick := time.NewTicker(glance)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-enough:
			return nil
		case <-s.service.Done():
			return s.service.Err()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
