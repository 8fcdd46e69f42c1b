package drivertest

import (
	"context"
	"sync"
	"time"

	"github.com/everonce/everonce/driver"
)

// endBugs are mistakes about the end of records: too early, too late, or of too many; and about what is read of them.
func endBugs() []bug {
	return []bug{
		{
			name: "an expired result is replayed", caught: "Rule13/ResultsGoAtRetentionRecordsAfterRemember",
			plant: both(func(s driver.Store) driver.Store { return &replayExpired{planted{s}} }),
		},
		{
			name: "token reset by a purge", caught: "Rule03/TokenGrowsAcrossPurge",
			plant: both(func(s driver.Store) driver.Store { return &firstTokenAgain{planted{s}} }),
		},
		{
			name: "a purge takes what is abandoned", caught: "Rule13/NothingUnsettledIsEverRemoved",
			plant: both(func(s driver.Store) driver.Store {
				return &purgeOf{planted: planted{s}, state: driver.StateAbandoned}
			}),
		},
		{
			name: "a purge takes what is released", caught: "Rule13/NothingUnsettledIsEverRemoved",
			plant: both(func(s driver.Store) driver.Store {
				return &purgeOf{planted: planted{s}, state: driver.StateReleased}
			}),
		},
		{
			name: "a scope is deleted with its tenant", caught: "ScopeDeleter/ForgetsAPartOfATenantAndNoMore",
			plant: both(func(s driver.Store) driver.Store { return &deleteTenant{planted{s}} }),
		},
		{
			name: "a brief read without the fingerprint", caught: "Rule20/ABriefReadTellsADuplicateAsMuch",
			plant: both(func(s driver.Store) driver.Store { return &briefWithoutFingerprint{planted{s}} }),
		},
		{
			name: "an identity that is not read", caught: "IdentityKeeper/ReadsTheSavedValue",
			plant: both(func(s driver.Store) driver.Store { return &unboundIdentity{planted{s}} }),
		},
		{
			name: "word of an end at every write", caught: "ChangeWaiter/WordComesWhenAnAttemptEnds",
			plant: func(h Harness) Harness {
				w := &words{ends: make(map[driver.RecordID][]func())}
				return both(func(s driver.Store) driver.Store { return &wordAtWrites{planted{s}, w} })(h)
			},
		},
	}
}

// replayExpired replays for as long as the record exists.
type replayExpired struct{ planted }

func (s *replayExpired) Claim(ctx context.Context, req driver.ClaimRequest) (driver.ClaimResult, error) {
	res, err := s.Store.Claim(ctx, req)
	if res.Decision == driver.DecideExpired {
		res.Decision = driver.DecideReplay
	}
	return res, err
}

// firstTokenAgain begins a new record with the token 1.
type firstTokenAgain struct{ planted }

func (s *firstTokenAgain) Claim(ctx context.Context, req driver.ClaimRequest) (driver.ClaimResult, error) {
	res, err := s.Store.Claim(ctx, req)
	if res.Decision == driver.DecideClaimed && res.Record.Attempt == 1 {
		res.Record.Token = 1
	}
	return res, err
}

// real returns the token that the store gave.
func (s *firstTokenAgain) real(ctx context.Context, id driver.RecordID, token driver.Token) driver.Token {
	if got, err := s.Get(ctx, driver.GetRequest{ID: id}); err == nil && got.Found && token == 1 {
		return got.Record.Token
	}
	return token
}

func (s *firstTokenAgain) Complete(ctx context.Context, req driver.CompleteRequest) (driver.CompleteResult, error) {
	req.Token = s.real(ctx, req.ID, req.Token)
	return s.Store.Complete(ctx, req)
}

// purgeOf removes all records of a state, whatever their lifetime.
type purgeOf struct {
	planted
	state   driver.State
	claimed sync.Map
	removed sync.Map
}

func (s *purgeOf) Claim(ctx context.Context, req driver.ClaimRequest) (driver.ClaimResult, error) {
	s.claimed.Store(req.ID, true)
	res, err := s.Store.Claim(ctx, req)
	if _, gone := s.removed.Load(req.ID); gone && err == nil {
		res.Decision = driver.DecideClaimed
		res.Record.Attempt, res.Record.Steps = 1, nil
	}
	return res, err
}

func (s *purgeOf) Purge(ctx context.Context, req driver.PurgeRequest) (driver.PurgeResult, error) {
	s.claimed.Range(func(id, _ any) bool {
		got, err := s.Get(ctx, driver.GetRequest{ID: id.(driver.RecordID)})
		if err == nil && got.Found && got.Record.StateAt(got.Now) == s.state {
			s.removed.Store(id, true)
		}
		return true
	})
	return s.Store.Purge(ctx, req)
}

// deleteTenant deletes by the first part of a scope.
type deleteTenant struct{ planted }

func (s *deleteTenant) DeleteScope(ctx context.Context, req driver.DeleteScopeRequest) (driver.DeleteScopeResult, error) {
	if parts := req.Scope.Parts(); len(parts) > 0 {
		req.Scope = driver.ScopeOf(parts[0])
	}
	return s.Store.(driver.ScopeDeleter).DeleteScope(ctx, req)
}

// briefWithoutFingerprint reads too little to detect a duplicate with another request.
type briefWithoutFingerprint struct{ planted }

func (s *briefWithoutFingerprint) Get(ctx context.Context, req driver.GetRequest) (driver.GetResult, error) {
	got, err := s.Store.Get(ctx, req)
	if req.Brief {
		got.Record.Fingerprint = driver.Fingerprint{}
	}
	return got, err
}

// unboundIdentity keeps an identity, and never finds it again.
type unboundIdentity struct{ planted }

func (s *unboundIdentity) KeepIdentity(ctx context.Context, req driver.KeepIdentityRequest) (driver.KeepIdentityResult, error) {
	return s.Store.(driver.IdentityKeeper).KeepIdentity(ctx, req)
}

func (s *unboundIdentity) ReadIdentity(context.Context, driver.ReadIdentityRequest) (res driver.ReadIdentityResult, err error) {
	return res, nil
}

// wordAtWrites sends word of an end with every renewal too. Word takes its time.
type wordAtWrites struct {
	planted
	words *words
}

// words are the watches of a store, by all of its handles.
type words struct {
	mu   sync.Mutex
	ends map[driver.RecordID][]func()
}

func (s *wordAtWrites) Watch(ctx context.Context, req driver.WatchRequest) (driver.WatchResult, error) {
	res, err := s.Store.(driver.ChangeWaiter).Watch(ctx, req)
	if err != nil {
		return res, err
	}
	ended, stopped := make(chan struct{}), make(chan struct{})
	end := sync.OnceFunc(func() { close(ended) })
	go func() {
		select {
		case <-res.Ended:
			time.AfterFunc(20*time.Millisecond, end)
		case <-stopped:
		}
	}()
	s.words.mu.Lock()
	defer s.words.mu.Unlock()
	s.words.ends[req.ID] = append(s.words.ends[req.ID], end)
	return driver.WatchResult{Ended: ended, Stop: sync.OnceFunc(func() { res.Stop(); close(stopped) })}, nil
}

func (s *wordAtWrites) Renew(ctx context.Context, req driver.RenewRequest) (driver.RenewResult, error) {
	s.words.mu.Lock()
	defer s.words.mu.Unlock()
	for _, end := range s.words.ends[req.ID] {
		time.AfterFunc(10*time.Millisecond, end)
	}
	return s.Store.Renew(ctx, req)
}
