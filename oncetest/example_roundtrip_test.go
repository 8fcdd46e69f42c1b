package oncetest_test

import (
	"time"

	"github.com/everonce/everonce/oncetest"
)

// A duplicate gets the saved result. Of this receipt, encoding/json loses two fields.
func ExampleRoundTrip() {
	var t Reporter // in a test: its *testing.T

	type receipt struct {
		ID      string    `json:"id"`
		Paid    time.Time `json:"paid"`
		Details any       `json:"details"`
		cents   int
	}
	paid := time.Date(2026, time.May, 1, 12, 0, 0, 0, time.UTC)
	oncetest.RoundTrip(t, nil, receipt{ID: "ch_7", Paid: paid, Details: 3, cents: 1250})

	// A result comes back unchanged if it consists of exported fields with types that encode completely.
	type charge struct {
		ID    string    `json:"id"`
		Paid  time.Time `json:"paid"`
		Items int       `json:"items"`
		Cents int       `json:"cents"`
	}
	oncetest.RoundTrip(t, nil, charge{ID: "ch_7", Paid: paid, Items: 3, Cents: 1250})
	// Output:
	// FAIL: oncetest: a result of type oncetest_test.receipt comes back different:
	// 	value.Details: int 3 became float64 3
	// 	value.cents: 1250 became 0
	// encoded: `{"id":"ch_7","paid":"2026-05-01T12:00:00Z","details":3}`
}
