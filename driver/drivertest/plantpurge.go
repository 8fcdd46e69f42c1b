package drivertest

import (
	"context"
	"errors"
	"sync"

	"github.com/everonce/everonce/driver"
)

// removalBugs are removals that look first and remove later, what was not to be removed any more. Each has its race
// run.
func removalBugs() []bug {
	return []bug{
		{
			name: "a purge that compares the token alone", caught: "Rule13/ALateCompletionSurvivesAPurge",
			plant: func(h Harness) Harness {
				s := &purgeByToken{planted: planted{h.Store}, selected: new(rendezvous), completed: new(rendezvous)}
				h.Store, h.Peer = s, s
				return h
			},
			pointless: func(_ Harness, c Capabilities) string {
				if c.RemovesByItself {
					return "what is gone by time is not there any more, for a purge or a completion"
				}
				return ""
			},
		},
		{
			name: "a deletion of what was claimed meanwhile", caught: "ScopeDeleter/SparesAClaimThatComesMeanwhile",
			plant: func(h Harness) Harness {
				s := &deleteSelected{planted: planted{h.Store}, selected: new(rendezvous), claimed: new(rendezvous)}
				h.Store, h.Peer = s, s
				return h
			},
		},
	}
}

// purgeByToken selects what is gone, and later removes what has the same token still: its own attempt may have
// completed it since.
type purgeByToken struct {
	planted
	selected, completed *rendezvous
	claims              sync.Map // tokens, by their record's ID
	removed             sync.Map
}

func (s *purgeByToken) Claim(ctx context.Context, req driver.ClaimRequest) (driver.ClaimResult, error) {
	res, err := s.Store.Claim(ctx, req)
	if err == nil && res.Decision == driver.DecideClaimed {
		s.claims.Store(req.ID, res.Record.Token)
	}
	return res, err
}

func (s *purgeByToken) Get(ctx context.Context, req driver.GetRequest) (driver.GetResult, error) {
	got, err := s.Store.Get(ctx, req)
	if _, gone := s.removed.Load(req.ID); gone && err == nil {
		return driver.GetResult{Now: got.Now}, nil
	}
	return got, err
}

func (s *purgeByToken) Complete(ctx context.Context, req driver.CompleteRequest) (driver.CompleteResult, error) {
	if got, err := s.Get(ctx, driver.GetRequest{ID: req.ID}); err == nil && !got.Found {
		s.selected.wait(req.ID)
		defer s.completed.arrived(req.ID)
	}
	return s.Store.Complete(ctx, req)
}

func (s *purgeByToken) Purge(ctx context.Context, req driver.PurgeRequest) (driver.PurgeResult, error) {
	s.claims.Range(func(key, token any) bool {
		id := key.(driver.RecordID)
		if got, err := s.Get(ctx, driver.GetRequest{ID: id}); err != nil || got.Found {
			return true
		}
		s.selected.arrived(id)
		s.completed.wait(id)
		if got, err := s.Get(ctx, driver.GetRequest{ID: id}); err == nil && got.Found && got.Record.Token == token.(driver.Token) {
			s.removed.Store(id, true)
		}
		return true
	})
	return s.Store.Purge(ctx, req)
}

// deleteSelected selects what is not live, and later removes what it has selected.
type deleteSelected struct {
	planted
	selected, claimed *rendezvous
	keys, removed     sync.Map
}

func (s *deleteSelected) Claim(ctx context.Context, req driver.ClaimRequest) (driver.ClaimResult, error) {
	if _, known := s.keys.LoadOrStore(req.ID, true); known {
		s.selected.wait(req.ID)
		defer s.claimed.arrived(req.ID)
	}
	return s.Store.Claim(ctx, req)
}

func (s *deleteSelected) Get(ctx context.Context, req driver.GetRequest) (driver.GetResult, error) {
	got, err := s.Store.Get(ctx, req)
	if _, gone := s.removed.Load(req.ID); gone && err == nil {
		return driver.GetResult{Now: got.Now}, nil
	}
	return got, err
}

func (s *deleteSelected) DeleteScope(ctx context.Context, req driver.DeleteScopeRequest) (driver.DeleteScopeResult, error) {
	var ids []driver.RecordID
	s.keys.Range(func(key, _ any) bool {
		got, err := s.Get(ctx, driver.GetRequest{ID: key.(driver.RecordID)})
		if err == nil && got.Found && got.Record.Scope.Within(req.Scope) && got.Record.StateAt(got.Now) != driver.StateClaimed {
			ids = append(ids, got.Record.ID)
		}
		return true
	})
	for _, id := range ids {
		s.selected.arrived(id)
	}
	for _, id := range ids {
		s.claimed.wait(id)
		s.removed.Store(id, true)
	}
	return s.Store.(driver.ScopeDeleter).DeleteScope(ctx, req)
}

// damageBugs are mistakes with unreadable records that are in the way of a removal.
func damageBugs() []bug {
	pointless := func(h Harness, _ Capabilities) string {
		if h.DamagedLease == nil {
			return "nothing damages a record of this store"
		}
		return ""
	}
	return []bug{
		{
			name: "a purge that ends at what it may not remove", caught: "Damage/APurgePassesItOver", pointless: pointless,
			plant: both(func(s driver.Store) driver.Store { return &purgeEnds{planted{s}} }),
		},
		{
			name: "a deletion that says nothing of what it leaves", caught: "Damage/AScopeIsNotForgottenInSilence", pointless: pointless,
			plant: both(func(s driver.Store) driver.Store { return &deleteInSilence{planted{s}} }),
		},
	}
}

// purgeEnds takes a batch that is not full for the last, and none is: a record that may not be removed has its
// place in each.
type purgeEnds struct{ planted }

func (s *purgeEnds) Purge(ctx context.Context, req driver.PurgeRequest) (driver.PurgeResult, error) {
	res, err := s.Store.Purge(ctx, driver.PurgeRequest{Limit: req.Limit - 1})
	res.More = res.Records+res.Results == req.Limit
	return res, err
}

type deleteInSilence struct{ planted }

func (s *deleteInSilence) DeleteScope(ctx context.Context, req driver.DeleteScopeRequest) (driver.DeleteScopeResult, error) {
	res, err := s.Store.(driver.ScopeDeleter).DeleteScope(ctx, req)
	if errors.Is(err, driver.ErrCorruptRecord) {
		err = nil
	}
	return res, err
}
