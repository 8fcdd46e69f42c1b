package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// supervise kills the service in mid-work, as often as asked, and starts it again. Then it sees that it
// stays up, until ctx ends. It returns how many kills it has made.
func (s *scenario) supervise(ctx context.Context) (made int, err error) {
	r := rand.New(rand.NewPCG(s.cfg.Seed, 2)) //nolint:gosec // when to kill, in a demo
	for made < s.cfg.Kills {
		inFlight, err := s.untilMidWork(ctx, made, r)
		if err != nil {
			return made, err
		}
		s.service.Kill()
		made++
		if s.service, err = s.startService(ctx); err != nil {
			return made, err
		}
		s.network.Connect(s.service.Addr())
		select {
		case s.kills <- inFlight:
		case <-ctx.Done():
			return made, context.Cause(ctx)
		}
	}
	select {
	case <-s.service.Done():
		return made, s.service.Err()
	case <-ctx.Done():
		return made, nil
	}
}

const (
	// crowdLimit is how long the kill waits for as much work in flight as it would like.
	crowdLimit = 3 * time.Second
	// hesitation spreads the kills over the phases of the work.
	hesitation = 40 * time.Millisecond
)

// untilMidWork waits for the moment of kill i, and returns how many operations are in flight at it.
func (s *scenario) untilMidWork(ctx context.Context, i int, r *rand.Rand) (int, error) {
	due := s.cfg.Operations * (i + 1) / (s.cfg.Kills + 1)
	if err := s.await(ctx, nil, func() bool { return s.network.Arrived() >= due }); err != nil {
		return 0, err
	}
	crowd := max(1, min(Width/2, (s.cfg.Operations-due)/2))
	patience := time.NewTimer(crowdLimit)
	defer patience.Stop()
	if err := s.await(ctx, patience.C, func() bool { return s.network.InFlight() >= crowd }); err != nil {
		return 0, err
	}
	pause := time.NewTimer(time.Duration(r.Int64N(int64(hesitation))))
	defer pause.Stop()
	if err := s.await(ctx, pause.C, func() bool { return false }); err != nil {
		return 0, err
	}
	for {
		if err := s.await(ctx, nil, func() bool { return s.network.InFlight() > 0 }); err != nil {
			return 0, err
		}
		if n := s.network.InFlight(); n > 0 { // it may have been answered in between
			return n, nil
		}
	}
}

// await waits until ok, or until enough. What ok looks at changes with the network.
func (s *scenario) await(ctx context.Context, enough <-chan time.Time, ok func() bool) error {
	for {
		changed := s.network.Changed()
		if ok() {
			return nil
		}
		select {
		case <-changed:
		case <-enough:
			return nil
		case <-s.service.Done():
			return s.service.Err()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// tooFewError ends a run whose kills did not all find work to interrupt.
type tooFewError struct{ made, asked int }

func (e *tooFewError) Error() string {
	return fmt.Sprintf("all payments were final after %d of %d kills: give more --operations, or fewer --kills", e.made, e.asked)
}
