package driver_test

import (
	"fmt"
	"time"

	"github.com/everonce/everonce/driver"
)

// A record answers the same claim differently as its time goes by.
func ExampleDecide() {
	now := time.Date(2026, time.March, 1, 9, 0, 0, 0, time.UTC)
	claim := driver.ClaimRequest{Nonce: driver.Nonce{2}}
	fmt.Println("no record:", driver.Decide(nil, claim, now))

	running := &driver.Record{State: driver.StateClaimed, Nonce: driver.Nonce{1}, LeaseUntil: now.Add(30 * time.Second)}
	fmt.Println("claimed:", driver.Decide(running, claim, now))
	fmt.Println("its lease has run out:", driver.Decide(running, claim, now.Add(time.Minute)))
	claim.Take = driver.TakeAbandoned
	fmt.Println("and may be taken over:", driver.Decide(running, claim, now.Add(time.Minute)))

	done := &driver.Record{State: driver.StateCompleted, ResultUntil: now.Add(time.Hour), PurgeAt: now.Add(2 * time.Hour)}
	for _, after := range []time.Duration{0, time.Hour, 2 * time.Hour} {
		fmt.Printf("completed, %v later: %v\n", after, driver.Decide(done, claim, now.Add(after)))
	}
	// Output:
	// no record: claimed
	// claimed: in_progress
	// its lease has run out: abandoned
	// and may be taken over: claimed
	// completed, 0s later: replay
	// completed, 1h0m0s later: expired
	// completed, 2h0m0s later: claimed
}
