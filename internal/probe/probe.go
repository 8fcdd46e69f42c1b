// Package probe lets the engine's tests, which are in another directory, see what a receiver still holds.
package probe

// Held counts what a receiver holds. Both are 0 once all of its calls have returned.
type Held struct {
	Callers int // waiting callers
	Keys    int // keys that they wait for
}

// Receiver returns what a *everonce.Receiver or *everonce.TxReceiver holds. Package everonce sets it.
var Receiver func(receiver any) Held
