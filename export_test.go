package everonce

// Waiting returns how many callers wait in the receiver, and how many keys they wait for: none once all
// have returned.
func (r *core) Waiting() (callers, keys int) {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	return int(r.hub.waiting.Load()), len(r.hub.crowds)
}

// Beating returns how many attempts of the receiver are due to beat: none once all have ended.
func (r *core) Beating() int {
	r.pulse.mu.Lock()
	defer r.pulse.mu.Unlock()
	return len(r.pulse.due)
}

// HoldNoSteps holds the lock that all attempts without steps share, until the function that it returns is called.
func HoldNoSteps() (release func()) {
	noSteps.mu.Lock()
	return noSteps.mu.Unlock
}
