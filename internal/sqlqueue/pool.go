package sqlqueue

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/retry"
	"github.com/everonce/everonce/internal/sqldb"
)

// Pool claims rows as they become due, and has them worked on.
//
// A claim asks only for rows whose rank is at least the rank of the last claim's first row: a database has to pass over
// all rows that were done since the oldest transaction in it began, and would pass over them at each claim. A row with
// a lower rank, such as a row whose transaction took long, is found by a claim without that bound, which comes at least
// each second, or as seldom as its own time asks for.
type Pool[T any] struct {
	Queue *Queue
	// Row returns where to scan a row and its own columns.
	Row func(*T) (*Row, []any)
	// Size is how many rows are claimed at a time, at most; Batch is how many are claimed together.
	Size, Batch int
	// Single has each row worked on alone; of an order key, one at a time.
	Single bool
	// Lease is how long rows are claimed. It is renewed at a third.
	Lease time.Duration
	// Poll is the longest pause between two looks for rows.
	Poll time.Duration
	// Channel, if not empty, is where new rows are announced.
	Channel string
	// Slack is how far below the last claim's first rank new rows may come: the lead of the highest priority.
	Slack time.Duration
	// Lanes, if set, returns the lanes to claim from, and those to leave out.
	Lanes func() (only, except []string)
	// Taken, if set, is called with the claimed rows before Lanes is called again.
	Taken func(rows []T)
	// Work works on rows of one claim, and ends them. Its context ends with the lease: [driver.ErrLeaseLost]. It does not
	// end with Run's, but after DrainTimeout.
	Work         func(ctx context.Context, token int64, rows []T)
	DrainTimeout time.Duration
	// Retention is how long done rows are kept; they are removed from time to time, unless it is negative.
	Retention time.Duration
	// Name and Log are for what is logged: "outbox".
	Name string
	Log  *slog.Logger

	mu    sync.Mutex
	free  int
	woken chan struct{}
}

// firstPoll is the pause after a look that found nothing; it doubles with each.
const firstPoll = 5 * time.Millisecond

// fullEvery is how often a claim without a floor comes, at least.
const fullEvery = time.Second

// dear is the longest time of a claim without rows that needs no pause after it. Such a claim has passed over all rows
// that wait for their key or their lane, so an announcement is no reason to repeat it at once.
const dear = 5 * time.Millisecond

// Wake has the pool look for rows at once.
func (p *Pool[T]) Wake() {
	select {
	case p.woken <- struct{}{}:
	default:
	}
}

// Soon has the pool look for rows after a time, if it might not do so by then: a row that it let go of is due.
func (p *Pool[T]) Soon(after time.Duration) {
	if after < p.Poll {
		time.AfterFunc(after+time.Millisecond, p.Wake)
	}
}

// Start makes the pool ready for [Pool.Run] and [Pool.Wake].
func (p *Pool[T]) Start() {
	p.free, p.woken = p.Size, make(chan struct{}, 1)
}

// Run works until ctx ends, and returns when all work has returned. Call it once.
func (p *Pool[T]) Run(ctx context.Context) {
	hard, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	release := context.AfterFunc(ctx, func() { time.AfterFunc(p.DrainTimeout, end) })
	defer release()
	var working sync.WaitGroup
	defer working.Wait()
	if p.Retention >= 0 {
		working.Go(func() { p.purge(ctx) })
	}
	if l, ok := p.Queue.db.(sqldb.Listener); ok && p.Channel != "" {
		working.Go(func() { p.listen(ctx, l) })
	}
	if p.Queue.dialect.AnyType {
		working.Go(func() { p.setAsideCorrupt(ctx, hard, &working) })
	}
	var floor int64
	var full time.Time // when the next claim without a floor is due
	var crowd Place    // where to look for heads among the order keys
	crowded := false
	var rest time.Time // after a dear claim that found nothing: when the same may be asked again, if no work returns
	var vain []string  // what it left out
	var vainFree int   // and how much was free
	pause, failures := firstPoll, 0
	for ctx.Err() == nil {
		p.mu.Lock()
		free := p.free
		p.mu.Unlock()
		want := min(p.Batch, free)
		if want <= 0 {
			p.wait(ctx, p.Poll) // for work to return
			continue
		}
		req := ClaimRequest{Limit: want, Lease: p.Lease, Floor: floor, Heads: p.Single}
		if p.Lanes != nil {
			req.Only, req.Except = p.Lanes()
			slices.Sort(req.Except)
		}
		began := time.Now()
		if began.Before(rest) && free == vainFree && slices.Equal(req.Except, vain) {
			p.wait(ctx, rest.Sub(began))
			continue
		}
		whole := !began.Before(full)
		if whole {
			req.Floor = math.MinInt64
		}
		if crowded {
			req.Crowd = &crowd
		}
		rows, token, err := Claim(hard, p.Queue, req, p.Row) // a claim cut short would keep its rows until its lease ends
		took := time.Since(began)
		if whole && err == nil && len(rows) < want {
			if now, err := p.Queue.Crowded(ctx); err == nil { // otherwise it is asked again
				crowded = now
			}
		}
		if whole {
			full = time.Now().Add(max(fullEvery, 20*time.Since(began)))
		}
		if rest = (time.Time{}); err == nil && len(rows) == 0 && took > dear {
			rest, vain, vainFree = time.Now().Add(4*took), req.Except, free
		}
		switch {
		case ctx.Err() != nil && err != nil: // what it may have claimed all the same comes again after its lease
			return
		case err != nil:
			failures++
			p.logFailure(err)
			if retry.Pause(ctx, retry.Backoff(failures)) != nil {
				return
			}
			continue
		case len(rows) == 0:
			failures = 0
			if p.wait(ctx, pause) {
				pause = firstPoll
			} else {
				pause = min(2*pause, p.Poll)
			}
			continue
		}
		failures, pause = 0, firstPoll
		floor = p.firstRank(rows) - p.Slack.Microseconds()
		p.begin(hard, &working, rows, token, began)
	}
}

// oddEvery is the pause between two passes through the table for rows that no claim finds; oddPause bounds that between
// two looks.
const (
	oddEvery = time.Minute
	oddPause = time.Second
)

// setAsideCorrupt has rows worked on that no claim finds, until ctx ends. It goes through the table in short looks with
// pauses, beside the claims.
func (p *Pool[T]) setAsideCorrupt(ctx, hard context.Context, working *sync.WaitGroup) {
	failures := 0
	for after := beforeAll; ; {
		began := time.Now()
		rows, token, err := ClaimOdd(hard, p.Queue, &after, p.Lease, p.Row)
		pause := min(20*time.Since(began), oddPause)
		switch {
		case ctx.Err() != nil && err != nil:
			return
		case err != nil:
			failures++
			p.logFailure(err)
			pause = retry.Backoff(failures)
		case len(rows) > 0:
			p.begin(hard, working, rows, token, began)
			pause = oddPause // there may be many: they take no room from others
		case after == beforeAll:
			pause = retry.Jitter(oddEvery)
		}
		if err == nil {
			failures = 0
		}
		if retry.Pause(ctx, pause) != nil {
			return
		}
	}
}

func (p *Pool[T]) logFailure(err error) {
	p.Log.Warn(p.Name+": the database failed; it is tried again", "error", err)
}

// purgeEvery is the pause between two purges; purgeLimit is how many rows one removes.
const (
	purgeEvery = time.Minute
	purgeLimit = 100_000
)

// purge removes rows whose retention has ended, until ctx ends.
func (p *Pool[T]) purge(ctx context.Context) {
	for retry.Pause(ctx, retry.Jitter(purgeEvery)) == nil {
		if _, err := p.Queue.Purge(ctx, p.Retention, purgeLimit); err != nil && ctx.Err() == nil {
			p.Log.Warn(p.Name+": old rows could not be removed; it is tried again", "error", err)
		}
	}
}

// firstRank is the lowest rank of the rows.
func (p *Pool[T]) firstRank(rows []T) int64 {
	first := int64(math.MaxInt64)
	for i := range rows {
		r, _ := p.Row(&rows[i])
		first = min(first, r.Rank)
	}
	return max(first, 0)
}

// wait waits for a wake or for d, and reports whether it was woken.
func (p *Pool[T]) wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-p.woken:
		return true
	case <-t.C:
	case <-ctx.Done():
	}
	return false
}

// begin has rows worked on, in new goroutines.
func (p *Pool[T]) begin(ctx context.Context, working *sync.WaitGroup, rows []T, token int64, claimed time.Time) {
	p.mu.Lock()
	p.free -= len(rows) // it may be below 0: followers are one row more than asked for, at most
	p.mu.Unlock()
	if p.Taken != nil {
		p.Taken(rows)
	}
	parts := [][]T{rows}
	if p.Single {
		parts = slices.Collect(slices.Chunk(rows, 1))
	}
	for _, part := range parts {
		working.Go(func() {
			defer func() {
				p.mu.Lock()
				p.free += len(part)
				p.mu.Unlock()
				p.Wake()
			}()
			p.leased(ctx, token, part, claimed)
		})
	}
}

// leased works on rows, and renews their lease until that has returned.
func (p *Pool[T]) leased(ctx context.Context, token int64, rows []T, claimed time.Time) {
	ctx, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	seqs := make([]int64, len(rows))
	for i := range rows {
		r, _ := p.Row(&rows[i])
		seqs[i] = r.Seq
	}
	beat, stop := context.WithCancel(context.WithoutCancel(ctx))
	var beating sync.WaitGroup
	defer beating.Wait()
	defer stop()
	beating.Go(func() { p.beat(beat, token, seqs, claimed, lose) })
	p.Work(ctx, token, rows)
}

// beat renews a lease at a third of it, until ctx ends. If it cannot, or if nothing of it is left, it ends the work: at
// the lease's end, whatever the database is about.
func (p *Pool[T]) beat(ctx context.Context, token int64, seqs []int64, claimed time.Time, lose func(error)) {
	until := claimed.Add(p.Lease)
	over := time.AfterFunc(time.Until(until), func() { lose(driver.ErrLeaseLost) })
	defer over.Stop()
	for retry.Pause(ctx, p.Lease/3) == nil {
		sent := time.Now()
		one, cancel := context.WithDeadline(ctx, until)
		kept, err := p.Queue.Renew(one, token, seqs, p.Lease)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && kept == 0: // all were ended, or another has them
			lose(driver.ErrLeaseLost)
			return
		case err == nil:
			until = sent.Add(p.Lease)
			over.Reset(time.Until(until))
		case !time.Now().Before(until):
			lose(errors.Join(driver.ErrLeaseLost, err))
			return
		}
	}
}

// listen wakes the pool when rows are announced, and again if it had not listened: some may have come meanwhile.
func (p *Pool[T]) listen(ctx context.Context, l sqldb.Listener) {
	for failures := 0; ctx.Err() == nil; {
		err := l.Listen(ctx, p.Channel, func() {
			failures = 0
			p.Wake()
		})
		if ctx.Err() != nil || errors.Is(err, errors.ErrUnsupported) {
			return
		}
		failures++
		p.logFailure(err)
		if retry.Pause(ctx, retry.Backoff(failures)) != nil {
			return
		}
	}
}
