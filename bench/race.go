package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// pace is how long everything takes.
type pace struct {
	rounds int
	round  time.Duration
	// held is how long each part of the measurement with an old snapshot takes, delivered how many delivered rows the
	// largest table has.
	held      time.Duration
	delivered int
	// requests is how many are sent where it is measured what is kept of them.
	requests int
}

// way is one way of doing the same work.
type way struct {
	name string
	// before, if set, is called before each turn: fresh tables, fresh maps.
	before func() error
	// do is one operation; n is a number that no other operation of the contest has.
	do func(ctx context.Context, n int64) error
	// size is how many operations one do is; 0 is 1.
	size int64
	// whole, if set, is a whole turn instead of do: it returns how many operations it was.
	whole func(ctx context.Context) (int64, error)

	rates  []float64 // operations a second, by round
	ops    int64
	allocs uint64
	trips  int64
}

// contest is some ways that take turns. The first one is the bare work.
type contest struct {
	store, mode string
	callers     int
	most        int64 // operations in one turn; 0 is no limit
	ways        []*way
	trips       *atomic.Int64 // the counter of round trips, if there is one
	targets     []target
	next        atomic.Int64
}

// target is a figure that the project has promised itself.
type target struct {
	what     string
	want     float64
	atMost   bool // the figure is a cost
	measured func() float64
}

func (c *contest) name() string { return c.store + ", " + c.mode }

func (c *contest) promised() []target { return c.targets }

// run lets the ways take turns: a round to warm up, then the rounds that are measured. It releases their data
// afterwards: the heap that one contest leaves decides how often another one's garbage is collected.
func (c *contest) run(ctx context.Context, p pace) error {
	defer func() {
		for _, w := range c.ways {
			w.before, w.do, w.whole = nil, nil, nil
		}
	}()
	for round := range p.rounds + 1 {
		for _, w := range c.ways {
			if err := c.turn(ctx, w, p.round, round > 0); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
		}
	}
	return nil
}

func (c *contest) turn(ctx context.Context, w *way, d time.Duration, counts bool) error {
	if w.before != nil {
		if err := w.before(); err != nil {
			return err
		}
	}
	runtime.GC()
	var (
		group  sync.WaitGroup
		ops    atomic.Int64
		failed atomic.Pointer[error]
		before runtime.MemStats
		trips  int64
	)
	if c.trips != nil {
		trips = c.trips.Load()
	}
	first := c.next.Add(1)
	if c.most > 0 {
		first = 0
	}
	runtime.ReadMemStats(&before)
	start := time.Now()
	callers := c.callers
	if w.whole != nil {
		callers = 1
	}
	for range callers {
		group.Go(func() {
			n, err := c.caller(ctx, w, start.Add(d), first)
			ops.Add(n)
			if err != nil {
				failed.CompareAndSwap(nil, &err)
			}
		})
	}
	group.Wait()
	took := time.Since(start)
	var after runtime.MemStats
	runtime.ReadMemStats(&after)
	if err := failed.Load(); err != nil {
		return *err
	}
	if ops.Load() == 0 {
		return errors.New("nothing was done in a turn")
	}
	if counts {
		w.rates = append(w.rates, float64(ops.Load())/took.Seconds())
		w.ops += ops.Load()
		w.allocs += after.Mallocs - before.Mallocs
		if c.trips != nil {
			w.trips += c.trips.Load() - trips
		}
	}
	return ctx.Err()
}

// batch is how many operations a caller does between two looks at the clock, where they are that quick.
const batch = 128

// caller does operations until the turn is over.
func (c *contest) caller(ctx context.Context, w *way, until time.Time, n int64) (ops int64, err error) {
	if w.whole != nil {
		return w.whole(ctx)
	}
	if c.most > 0 { // one caller, numbered from 0
		for ; ops < c.most; ops++ {
			if err := w.do(ctx, n+ops); err != nil {
				return ops, err
			}
			if ops%batch == 0 && time.Now().After(until) {
				break
			}
		}
		return ops, nil
	}
	for time.Now().Before(until) && ctx.Err() == nil {
		if err := w.do(ctx, c.next.Add(1)); err != nil {
			return ops, err
		}
		ops += max(w.size, 1)
	}
	return ops, nil
}

func (w *way) rate() float64 { return median(w.rates) }

func (w *way) allocsPerOp() float64 { return float64(w.allocs) / float64(w.ops) }

// per returns the ratio of the rates of two ways.
func (w *way) per(of *way) float64 {
	ratios := make([]float64, len(w.rates))
	for i := range w.rates {
		ratios[i] = w.rates[i] / of.rates[i]
	}
	return median(ratios)
}

func median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	if len(s)%2 == 1 {
		return s[len(s)/2]
	}
	return (s[len(s)/2-1] + s[len(s)/2]) / 2
}

// tripsPerOp is how many round trips an operation took.
func (w *way) tripsPerOp() float64 { return float64(w.trips) / float64(w.ops) }

// atLeast is a target for a ratio of rates.
func (w *way) atLeast(want float64, of *way, what string) target {
	return target{what: what, want: want, measured: func() float64 { return w.per(of) }}
}

// atMostTimes is a target for a ratio of times.
func (w *way) atMostTimes(want float64, of *way, what string) target {
	return target{what: what, want: want, atMost: true, measured: func() float64 { return 1 / w.per(of) }}
}

func (w *way) atMostAllocs(want float64, what string) target {
	return target{what: what, want: want, atMost: true, measured: w.allocsPerOp}
}

// atMostAllocsOver is a target for what one way allocates over another.
func (w *way) atMostAllocsOver(want float64, of *way, what string) target {
	return target{what: what, want: want, atMost: true, measured: func() float64 { return w.allocsPerOp() - of.allocsPerOp() }}
}
