package httponce

import "testing"

// Either the handler's call ends, or its client is answered in its place, whichever comes first, and not both.
// Otherwise the client would get a Retry-After for an answer that exists, and the place of a continuing call would
// never be given back.
func TestAGateIsPassedOnce(t *testing.T) {
	var over, taken gate
	if over.end() || over.take(new(recorder)) {
		t.Error("a client is answered in the place of a handler whose call has ended")
	}
	if !taken.take(new(recorder)) || !taken.end() {
		t.Error("the end of a call whose client has been answered is not late")
	}
}
