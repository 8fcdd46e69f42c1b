package httponce_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/everonce/everonce/httponce"
)

// A forbidden trailer is not sent, neither with the first answer nor with a repetition: net/http sends undeclared ones
// unchanged.
func TestWhatMayBeNoTrailerIsNotSent(t *testing.T) {
	wrong := []string{"Content-Length", "transfer-encoding", "Trailer", "Content-Encoding", "WWW-Authenticate", "If-None-Match"}
	for how, route := range map[string]httponce.Route{"held": {}, "held, in a goroutine": {AnswerWithin: time.Minute}, "set before the body": {}, "passed on": {MaxAnswer: 2}} {
		w := newWire(t, false, route)
		name := w.handle(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Trailer", "X-Sum")
			if how != "set before the body" {
				_, _ = io.WriteString(rw, "paid")
			}
			rw.Header().Set("X-Sum", "7")
			for _, name := range append(wrong, "X-More") {
				rw.Header().Set(http.TrailerPrefix+name, "5")
			}
			if how == "set before the body" {
				_, _ = io.WriteString(rw, "paid")
			}
		})
		behind := func(answer string) (fields []string) {
			_, trailers, _ := strings.Cut(answer, "\r\n0\r\n")
			for line := range strings.SplitSeq(strings.TrimSpace(trailers), "\r\n") {
				field, _, _ := strings.Cut(line, ":")
				fields = append(fields, field)
			}
			slices.Sort(fields)
			return fields
		}
		if got := behind(w.raw(t, w.bare, "HTTP/1.1", "POST", name, true)); len(got) != len(wrong)+2 {
			t.Errorf("%s: net/http alone sends %q, and nothing has to be removed", how, got)
		}
		for _, which := range []string{"first", "again"} {
			if how == "passed on" && which == "again" {
				continue // its body was not kept
			}
			if got := fmt.Sprint(behind(w.raw(t, w.protected, "HTTP/1.1", "POST", name, true))); got != "[X-More X-Sum]" {
				t.Errorf("%s, %s: trailers %s", how, which, got)
			}
		}
	}
}
