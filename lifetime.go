package everonce

import "time"

// ForWeb returns the default lifetime, for answers to people and their clients: kept for a day, remembered for another.
func ForWeb() Lifetime { return Lifetime{Retention: 24 * time.Hour, Remember: 24 * time.Hour} }

// ForQueue returns the lifetime for messages and their dead letters: kept for 7 days, remembered for another 7.
func ForQueue() Lifetime {
	return Lifetime{Retention: 7 * 24 * time.Hour, Remember: 7 * 24 * time.Hour}
}

// ForFinance returns the lifetime for money: kept for 90 days, remembered until a year has passed.
func ForFinance() Lifetime {
	return Lifetime{Retention: 90 * 24 * time.Hour, Remember: 275 * 24 * time.Hour}
}
