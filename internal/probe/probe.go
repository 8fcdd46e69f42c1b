// Package probe lets the engine's tests, which stand in a folder apart, see what a receiver still holds.
package probe

// Held is what a receiver holds: nothing once all of its calls have returned.
type Held struct {
	Callers int // that wait
	Keys    int // that they wait for
}

// Receiver returns what a *everonce.Receiver or *everonce.TxReceiver holds. Package everonce sets it.
var Receiver func(receiver any) Held
