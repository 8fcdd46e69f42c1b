package oncetest

import (
	"context"

	"github.com/everonce/everonce"
)

// powers are the optional powers of a wrapped store, each nil where it has none.
type powers struct {
	lister  everonce.Lister
	deleter everonce.ScopeDeleter
	health  everonce.HealthChecker
	keeper  everonce.IdentityKeeper
}

// powersOf returns the powers of a store, with calls that can fail.
func powersOf(store everonce.Store, n *numbered) (p powers) {
	if s, ok := store.(everonce.Lister); ok {
		p.lister = faultLister{s, n}
	}
	if s, ok := store.(everonce.ScopeDeleter); ok {
		p.deleter = faultDeleter{s, n}
	}
	if s, ok := store.(everonce.HealthChecker); ok {
		p.health = faultHealth{s, n}
	}
	if s, ok := store.(everonce.IdentityKeeper); ok {
		p.keeper = faultKeeper{s, n}
	}
	return p
}

// index numbers the sixteen sets of powers.
func (p powers) index() (i int) {
	for bit, has := range [...]bool{p.lister != nil, p.deleter != nil, p.health != nil, p.keeper != nil} {
		if has {
			i |= 1 << bit
		}
	}
	return i
}

type (
	lister  = everonce.Lister
	deleter = everonce.ScopeDeleter
	health  = everonce.HealthChecker
	keeper  = everonce.IdentityKeeper
)

// withPowers returns s with exactly these powers: a type assertion must not find one that is not there.
func withPowers(s everonce.Store, p powers) everonce.Store {
	type store = everonce.Store
	switch l, d, h, k := p.lister, p.deleter, p.health, p.keeper; p.index() {
	case 0b0001:
		return &struct {
			store
			lister
		}{s, l}
	case 0b0010:
		return &struct {
			store
			deleter
		}{s, d}
	case 0b0011:
		return &struct {
			store
			lister
			deleter
		}{s, l, d}
	case 0b0100:
		return &struct {
			store
			health
		}{s, h}
	case 0b0101:
		return &struct {
			store
			lister
			health
		}{s, l, h}
	case 0b0110:
		return &struct {
			store
			deleter
			health
		}{s, d, h}
	case 0b0111:
		return &struct {
			store
			lister
			deleter
			health
		}{s, l, d, h}
	case 0b1000:
		return &struct {
			store
			keeper
		}{s, k}
	case 0b1001:
		return &struct {
			store
			lister
			keeper
		}{s, l, k}
	case 0b1010:
		return &struct {
			store
			deleter
			keeper
		}{s, d, k}
	case 0b1011:
		return &struct {
			store
			lister
			deleter
			keeper
		}{s, l, d, k}
	case 0b1100:
		return &struct {
			store
			health
			keeper
		}{s, h, k}
	case 0b1101:
		return &struct {
			store
			lister
			health
			keeper
		}{s, l, h, k}
	case 0b1110:
		return &struct {
			store
			deleter
			health
			keeper
		}{s, d, h, k}
	case 0b1111:
		return &struct {
			store
			lister
			deleter
			health
			keeper
		}{s, l, d, h, k}
	}
	return s
}

type faultLister struct {
	store everonce.Lister
	n     *numbered
}

func (s faultLister) List(ctx context.Context, req everonce.ListRequest) (everonce.ListResult, error) {
	return faulty(ctx, s.n, OpList, s.store.List, req)
}

type faultDeleter struct {
	store everonce.ScopeDeleter
	n     *numbered
}

func (s faultDeleter) DeleteScope(ctx context.Context, req everonce.DeleteScopeRequest) (everonce.DeleteScopeResult, error) {
	return faulty(ctx, s.n, OpDeleteScope, s.store.DeleteScope, req)
}

type faultHealth struct {
	store everonce.HealthChecker
	n     *numbered
}

func (s faultHealth) Health(ctx context.Context) (everonce.Health, error) {
	c, f := s.n.next(OpHealth, "")
	return suffer(ctx, c, f, func() (everonce.Health, error) { return s.store.Health(ctx) })
}

type faultKeeper struct {
	store everonce.IdentityKeeper
	n     *numbered
}

func (s faultKeeper) KeepIdentity(ctx context.Context, check [32]byte) error {
	c, f := s.n.next(OpIdentity, "")
	_, err := suffer(ctx, c, f, func() (struct{}, error) { return struct{}{}, s.store.KeepIdentity(ctx, check) })
	return err
}
