package driver

// PowerOf returns an optional power of a store, [Lister] say, and whether the store has it. Use PowerOf, not a type assertion.
//
// A store that wraps another one may have a method Unwrap() Store that returns the other. It then has those powers that
// both have: the wrapper has the methods of all that it can pass on, whatever it is put around.
func PowerOf[Power any](store Store) (Power, bool) {
	power, has := store.(Power)
	if outer, wraps := store.(interface{ Unwrap() Store }); has && wraps {
		_, has = PowerOf[Power](outer.Unwrap())
	}
	if !has {
		var none Power
		return none, false
	}
	return power, true
}
