package oncetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// Unwrap returns the store that is wrapped: of the powers below a faultStore has those that it has too.
func (s *faultStore) Unwrap() everonce.Store { return s.store }

// faultyPower makes one numbered call of an optional power.
func faultyPower[Power, Req, Res any](ctx context.Context, s *faultStore, op Op, call func(Power, context.Context, Req) (Res, error), req Req) (Res, error) {
	power, ok := driver.PowerOf[Power](s.store)
	if !ok {
		var none Res
		return none, fmt.Errorf("oncetest: %T is no %v: %w", s.store, reflect.TypeFor[Power](), errors.ErrUnsupported)
	}
	return faulty(ctx, s.n, op, func(ctx context.Context, req Req) (Res, error) { return call(power, ctx, req) }, req)
}

func (s *faultStore) List(ctx context.Context, req driver.ListRequest) (driver.ListResult, error) {
	return faultyPower(ctx, s, OpList, driver.Lister.List, req)
}

func (s *faultStore) DeleteScope(ctx context.Context, req driver.DeleteScopeRequest) (driver.DeleteScopeResult, error) {
	return faultyPower(ctx, s, OpDeleteScope, driver.ScopeDeleter.DeleteScope, req)
}

func (s *faultStore) Health(ctx context.Context, req driver.HealthRequest) (driver.HealthResult, error) {
	return faultyPower(ctx, s, OpHealth, driver.HealthChecker.Health, req)
}

func (s *faultStore) CheckWrite(ctx context.Context, req driver.CheckWriteRequest) (driver.CheckWriteResult, error) {
	return faultyPower(ctx, s, OpCheckWrite, driver.WriteChecker.CheckWrite, req)
}

func (s *faultStore) KeepIdentity(ctx context.Context, req driver.KeepIdentityRequest) (driver.KeepIdentityResult, error) {
	return faultyPower(ctx, s, OpIdentity, driver.IdentityKeeper.KeepIdentity, req)
}
