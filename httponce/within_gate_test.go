package httponce

import "testing"

// The call of a handler ends, or its client is answered in its place: whichever comes first, and not both. Else the client would be told to
// ask again for an answer that is there, and the place of one that goes on never be given back.
func TestAGateIsPassedOnce(t *testing.T) {
	var over, taken gate
	if over.end() || over.take(new(recorder)) {
		t.Error("a client is answered in the place of a handler whose call has ended")
	}
	if !taken.take(new(recorder)) || !taken.end() {
		t.Error("the end of a call whose client has been answered is not late")
	}
}
