package drivertest

import "slices"

// storeChecks are the checks of every store.
func storeChecks() []check {
	return slices.Concat(callChecks(), generatedChecks(), engineChecks(), crashChecks(), historyChecks())
}

// callChecks are those of the store's calls, one by one: what another driver or server may answer in its own way.
func callChecks() []check {
	return slices.Concat(
		claimChecks(), fenceChecks(), raceChecks(), repeatChecks(), briefChecks(), clockChecks(), purgeChecks(), stepChecks(), limitChecks(), contextChecks(),
		durableChecks(), capabilityChecks(), newerChecks(), damageChecks(), decisionChecks(),
	)
}
