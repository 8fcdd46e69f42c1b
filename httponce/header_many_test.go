package httponce

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A service may send a million headers and announce as many trailers: what is done about each of them does not grow
// with the number of all, which would keep a processor busy for minutes, whatever the deadline says.
func TestVeryManyHeadersTakeNoTimeEach(t *testing.T) {
	const many = 200_000
	names := make([]string, many)
	h := make(http.Header, many+2)
	for i := range names {
		names[i] = "X-" + strconv.Itoa(i)
		h[names[i]] = []string{"1"}
	}
	h.Set("Connection", strings.Join(names[:many/2], ","))
	h.Set("Trailer", strings.Join(names[many/2:], ","))
	r := &recorder{x: &exchange{r: &http.Request{ProtoMajor: 1}, route: &route{}}, header: h, used: true, sent: fields(nil).taken(h)}
	done := make(chan [2]int, 1)
	go func() {
		saved := 0
		for _, f := range r.x.route.headers.mark(r.sent, nil) {
			if f.saved {
				saved++
			}
		}
		done <- [2]int{saved, len(r.trailers())}
	}()
	select {
	case got := <-done:
		if want := [2]int{many/2 + 1, many / 2}; got != want { // Trailer is one of those that are saved
			t.Errorf("%d headers are saved and %d are trailers, want %d", got[0], got[1], want)
		}
	case <-time.After(time.Minute):
		t.Fatal("it takes more than a minute")
	}
}
