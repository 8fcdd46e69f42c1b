package oncetest_test

import (
	"fmt"

	"github.com/everonce/everonce/oncetest"
)

// The same seed fails the same calls, so what a run has found can be run again.
func ExampleSeeded() {
	for _, seed := range []uint64{1, 1, 2} {
		plan := oncetest.Seeded(seed, 0.3, oncetest.FailBefore, oncetest.FailAfter)
		for n := 1; n <= 5; n++ {
			if fault := plan(oncetest.Call{Op: oncetest.OpComplete, N: n}); fault != oncetest.Pass {
				fmt.Printf("seed %d: %v %d %v\n", seed, oncetest.OpComplete, n, fault)
			}
		}
	}
	// Output:
	// seed 1: complete 2 answer lost
	// seed 1: complete 3 failed before
	// seed 1: complete 2 answer lost
	// seed 1: complete 3 failed before
	// seed 2: complete 2 failed before
	// seed 2: complete 4 answer lost
	// seed 2: complete 5 answer lost
}

// The first completion loses its answer, and the second never gets there.
func ExampleFirstOf() {
	plan := oncetest.FirstOf(
		oncetest.At(oncetest.OpComplete, 1, oncetest.FailAfter),
		oncetest.At(oncetest.OpComplete, 2, oncetest.FailBefore),
	)
	for n := 1; n <= 3; n++ {
		fmt.Println(oncetest.OpComplete, n, plan(oncetest.Call{Op: oncetest.OpComplete, N: n}))
	}
	// Output:
	// complete 1 answer lost
	// complete 2 failed before
	// complete 3 ok
}
