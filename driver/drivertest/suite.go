package drivertest

import "slices"

// storeChecks are the checks of every store.
func storeChecks() []check {
	return slices.Concat(callChecks(), generatedChecks(), engineChecks(), crashChecks(), historyChecks())
}

// callChecks test the store's calls one by one: the parts that may differ with another driver or server.
func callChecks() []check {
	return slices.Concat(
		claimChecks(), fenceChecks(), raceChecks(), repeatChecks(), briefChecks(), clockChecks(), purgeChecks(), stepChecks(), limitChecks(), contextChecks(),
		durableChecks(), capabilityChecks(), newerChecks(), damageChecks(), decisionChecks(),
	)
}
