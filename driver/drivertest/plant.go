package drivertest

import (
	"context"
	"crypto/sha256"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/everonce/everonce/driver"
)

// planted is a store with a mistake: what it does not get wrong it passes on.
type planted struct{ driver.Store }

// both plants a mistake into both handles of a store.
func both(plant func(s driver.Store) driver.Store) func(h Harness) Harness {
	return func(h Harness) Harness {
		if h.Peer == nil {
			h.Peer = h.Store
		}
		h.Store, h.Peer = plant(h.Store), plant(h.Peer)
		return h
	}
}

// allBugs are the bugs for every store.
func allBugs() []bug {
	return slices.Concat(storeBugs(), raceBugs(), writeBugs(), endBugs(), removalBugs(), damageBugs(), engineBugs())
}

// storeBugs are mistakes of a store.
func storeBugs() []bug {
	return []bug{
		{
			name: "no fence", caught: "Rule03/PausedOwnerWritesAfterATakeover",
			plant: both(func(s driver.Store) driver.Store { return &noFence{planted{s}} }),
		},
		{
			name: "renew without token", caught: "Rule03/WrongTokenOrNonce",
			plant: both(func(s driver.Store) driver.Store { return &renewWithoutToken{planted{s}} }),
		},
		{
			name: "token reset by release", caught: "Rule03/TokenGrowsAcrossRelease",
			plant: both(func(s driver.Store) driver.Store { return &tokenReset{planted: planted{s}} }),
		},
		{
			name: "local clock", caught: "Rule02/CallersAnHourOff",
			plant: func(h Harness) Harness {
				h.Peer = &localClock{planted: planted{h.Store}, ahead: long}
				h.Store = &localClock{planted: planted{h.Store}, ahead: -long}
				return h
			},
		},
		{
			name: "any error taken as duplicate", caught: "Rule07/ACancelledClaimIsNoDuplicate",
			plant: both(func(s driver.Store) driver.Store { return &errorIsDuplicate{planted{s}} }),
		},
		{
			name: "lease = retention", caught: "Rule02/LeaseCountsFromTheStoresClock",
			plant: both(func(s driver.Store) driver.Store { return &leaseIsRetention{planted{s}} }),
		},
		{
			name: "TTL = lease", caught: "Rule13/NothingUnsettledIsEverRemoved",
			plant: both(func(s driver.Store) driver.Store { return &ttlIsLease{planted{s}} }),
		},
		{
			name: "replay across scopes", caught: "Rule09/ScopesAreApart",
			plant: both(func(s driver.Store) driver.Store { return &noScope{planted: planted{s}} }),
		},
		{
			name: "fingerprint ignored", caught: "Rule08/MismatchComesBeforeEverythingElse",
			plant: both(func(s driver.Store) driver.Store { return &noFingerprint{planted{s}} }),
		},
		{
			name: "purge without its predicate", caught: "Rule13/AReclaimedKeySurvivesAPurge",
			plant: func(h Harness) Harness {
				blind := &blindPurge{planted: planted{h.Store}}
				h.Store, h.Peer = blind, blind
				return h
			},
		},
		{
			name: "acknowledged before commit", caught: "Rule15/AcknowledgedWritesAreVisible",
			plant: func(h Harness) Harness {
				if h.Peer == nil {
					h.Peer = h.Store
				}
				h.Store = &ackBeforeCommit{planted: planted{h.Store}}
				return h
			},
		},
		{
			name: "ghost claim by a delayed packet", caught: "Rule04/DelayedClaimAfterReleaseByNonce",
			plant: both(func(s driver.Store) driver.Store { return &ghostClaim{planted{s}} }),
		},
	}
}

// noFence completes, renews and releases under whatever token stands.
type noFence struct{ planted }

func (s *noFence) Complete(ctx context.Context, req driver.CompleteRequest) (driver.CompleteResult, error) {
	got, err := s.Get(ctx, driver.GetRequest{ID: req.ID})
	if err == nil && got.Found {
		req.Token, req.Nonce = got.Record.Token, got.Record.Nonce
	}
	return s.Store.Complete(ctx, req)
}

type renewWithoutToken struct{ planted }

func (s *renewWithoutToken) Renew(ctx context.Context, req driver.RenewRequest) (driver.RenewResult, error) {
	got, err := s.Get(ctx, driver.GetRequest{ID: req.ID})
	if err == nil && got.Found {
		req.Token, req.Nonce = got.Record.Token, got.Record.Nonce
	}
	return s.Store.Renew(ctx, req)
}

// tokenReset counts tokens from 1 again after every release.
type tokenReset struct {
	planted
	mu    sync.Mutex
	count map[driver.RecordID]driver.Token
	real  map[driver.Nonce]driver.Token
}

func (s *tokenReset) Claim(ctx context.Context, req driver.ClaimRequest) (driver.ClaimResult, error) {
	res, err := s.Store.Claim(ctx, req)
	if err != nil || res.Decision != driver.DecideClaimed {
		return res, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count == nil {
		s.count, s.real = make(map[driver.RecordID]driver.Token), make(map[driver.Nonce]driver.Token)
	}
	if res.Record.Previous.State == driver.StateReleased {
		s.count[req.ID] = 0
	}
	s.count[req.ID]++
	s.real[req.Nonce] = res.Record.Token
	res.Record.Token = s.count[req.ID]
	return res, nil
}

func (s *tokenReset) Release(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseResult, error) {
	s.mu.Lock()
	if token, ok := s.real[req.Nonce]; ok && req.Token != 0 {
		req.Token = token
	}
	s.mu.Unlock()
	return s.Store.Release(ctx, req)
}

// localClock measures leases by the clock of its process, which is ahead of the store's.
type localClock struct {
	planted
	ahead time.Duration
}

func (s *localClock) Claim(ctx context.Context, req driver.ClaimRequest) (driver.ClaimResult, error) {
	got, err := s.Get(ctx, driver.GetRequest{ID: req.ID})
	if err != nil {
		return driver.ClaimResult{}, err
	}
	lapsed := got.Found && got.Record.State == driver.StateClaimed && !got.Now.Add(s.ahead).Before(got.Record.LeaseUntil)
	if lapsed && req.Take == driver.TakeAbandoned {
		req.Take = driver.TakeForced
	}
	req.Lease = max(req.Lease+s.ahead, time.Millisecond)
	return s.Store.Claim(ctx, req)
}

// errorIsDuplicate takes every error of an insert for a conflict on the unique index.
type errorIsDuplicate struct{ planted }

func (s *errorIsDuplicate) Claim(ctx context.Context, req driver.ClaimRequest) (driver.ClaimResult, error) {
	res, err := s.Store.Claim(ctx, req)
	if err != nil {
		return driver.ClaimResult{Decision: driver.DecideInProgress}, nil
	}
	return res, nil
}

type leaseIsRetention struct{ planted }

func (s *leaseIsRetention) Claim(ctx context.Context, req driver.ClaimRequest) (driver.ClaimResult, error) {
	req.Lease = req.Lifetime.Retention
	return s.Store.Claim(ctx, req)
}

// ttlIsLease lets a record expire with its lease.
type ttlIsLease struct{ planted }

func (s *ttlIsLease) Claim(ctx context.Context, req driver.ClaimRequest) (driver.ClaimResult, error) {
	req.ExpireUnsettled, req.Lifetime = true, driver.Lifetime{Retention: req.Lease}
	return s.Store.Claim(ctx, req)
}

func (s *ttlIsLease) Renew(ctx context.Context, req driver.RenewRequest) (driver.RenewResult, error) {
	req.Lifetime = driver.Lifetime{Retention: req.Lease}
	return s.Store.Renew(ctx, req)
}

// noScope knows records by the name alone.
type noScope struct {
	planted
	ids sync.Map // the ID that was asked for → the one that stands for the name
}

func (s *noScope) Claim(ctx context.Context, req driver.ClaimRequest) (driver.ClaimResult, error) {
	id := driver.RecordID(sha256.Sum256([]byte(req.Name)))
	s.ids.Store(req.ID, id)
	req.ID = id
	return s.Store.Claim(ctx, req)
}

func (s *noScope) Complete(ctx context.Context, req driver.CompleteRequest) (driver.CompleteResult, error) {
	if id, ok := s.ids.Load(req.ID); ok {
		req.ID = id.(driver.RecordID)
	}
	return s.Store.Complete(ctx, req)
}

type noFingerprint struct{ planted }

func (s *noFingerprint) Claim(ctx context.Context, req driver.ClaimRequest) (driver.ClaimResult, error) {
	req.Fingerprint = driver.Fingerprint{}
	return s.Store.Claim(ctx, req)
}

// blindPurge selects what is gone, and later removes what it had selected, without looking again. A claim of what
// is gone waits until a purge has selected it, and that purge for the claim, so that the race is always run.
type blindPurge struct {
	planted
	mu      sync.Mutex
	races   map[driver.RecordID]*purgeRace // of every key that was claimed
	removed map[driver.RecordID]bool
}

// purgeRace is between a purge that has selected a record and a claim of its key.
type purgeRace struct {
	selected, claimed         chan struct{}
	closeSelected, closeClaim sync.Once
}

func (s *blindPurge) Claim(ctx context.Context, req driver.ClaimRequest) (driver.ClaimResult, error) {
	s.mu.Lock()
	if s.races == nil {
		s.races, s.removed = make(map[driver.RecordID]*purgeRace), make(map[driver.RecordID]bool)
	}
	race, known := s.races[req.ID]
	if !known {
		s.races[req.ID] = &purgeRace{selected: make(chan struct{}), claimed: make(chan struct{})}
	}
	s.mu.Unlock()
	if known {
		if got, err := s.Store.Get(ctx, driver.GetRequest{ID: req.ID}); err == nil && !got.Found {
			defer race.closeClaim.Do(func() { close(race.claimed) })
			select {
			case <-race.selected:
			case <-ctx.Done():
			}
		}
	}
	return s.Store.Claim(ctx, req)
}

func (s *blindPurge) Get(ctx context.Context, req driver.GetRequest) (driver.GetResult, error) {
	got, err := s.Store.Get(ctx, req)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && s.removed[req.ID] {
		return driver.GetResult{Now: got.Now}, nil
	}
	return got, err
}

func (s *blindPurge) Purge(ctx context.Context, req driver.PurgeRequest) (driver.PurgeResult, error) {
	s.mu.Lock()
	gone := maps.Clone(s.races)
	s.mu.Unlock()
	for id, race := range gone {
		if got, err := s.Store.Get(ctx, driver.GetRequest{ID: id}); err != nil || got.Found {
			delete(gone, id)
			continue
		}
		race.closeSelected.Do(func() { close(race.selected) })
	}
	res, err := s.Store.Purge(ctx, req)
	for id, race := range gone {
		select {
		case <-race.claimed: // as for a lock
			s.mu.Lock()
			s.removed[id] = true
			s.mu.Unlock()
		case <-ctx.Done():
		}
	}
	return res, err
}

// ackBeforeCommit answers first and writes with its next call, as a buffer of a process does that a crash empties.
type ackBeforeCommit struct {
	planted
	mu      sync.Mutex
	pending []driver.CompleteRequest
}

func (s *ackBeforeCommit) flush(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, req := range s.pending {
		_, err := s.Store.Complete(ctx, req)
		errs = append(errs, err)
	}
	s.pending = nil
	return errors.Join(errs...)
}

func (s *ackBeforeCommit) Claim(ctx context.Context, req driver.ClaimRequest) (driver.ClaimResult, error) {
	if err := s.flush(ctx); err != nil {
		return driver.ClaimResult{}, err
	}
	return s.Store.Claim(ctx, req)
}

func (s *ackBeforeCommit) Get(ctx context.Context, req driver.GetRequest) (driver.GetResult, error) {
	if err := s.flush(ctx); err != nil {
		return driver.GetResult{}, err
	}
	return s.Store.Get(ctx, req)
}

func (s *ackBeforeCommit) Complete(_ context.Context, req driver.CompleteRequest) (driver.CompleteResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = append(s.pending, req)
	return driver.CompleteResult{}, nil
}

// ghostClaim forgets which nonces have ended.
type ghostClaim struct{ planted }

func (s *ghostClaim) Claim(ctx context.Context, req driver.ClaimRequest) (driver.ClaimResult, error) {
	res, err := s.Store.Claim(ctx, req)
	if errors.Is(err, driver.ErrAttemptEnded) {
		req.Nonce = driver.NewNonce()
		return s.Store.Claim(ctx, req)
	}
	return res, err
}
