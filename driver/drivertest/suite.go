package drivertest

import "slices"

// storeChecks are the checks of every store.
func storeChecks() []check {
	return slices.Concat(
		claimChecks(), fenceChecks(), raceChecks(), repeatChecks(), briefChecks(), clockChecks(), purgeChecks(), stepChecks(), limitChecks(), contextChecks(),
		durableChecks(), capabilityChecks(), newerChecks(), damageChecks(), generatedChecks(), engineChecks(), crashChecks(), historyChecks(),
	)
}
