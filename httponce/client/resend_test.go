package client_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/everonce/everonce/httponce/client"
)

// http.Transport itself sends a request that carries Idempotency-Key or X-Idempotency-Key again, when a
// connection that it reuses turns out to be dead: seen on the wire, and nowhere else. The key is the same.
// Under another header it does not, and the transport does.
func TestTransportTrapNetHTTPSendsAgain(t *testing.T) {
	for header, byItself := range map[string]bool{"Idempotency-Key": true, "X-Idempotency-Key": true, "Repeatability-Request-Id": false} {
		t.Run(header, func(t *testing.T) {
			wire := onTheWire(t,
				func(c net.Conn) {
					if reads(c) != nil {
						_, _ = io.WriteString(c, created)
						reads(c) // and no answer
					}
				},
				answers(created))
			retries := 0
			sender := over(t, base(), &client.Options{
				KeyHeader: header,
				OnRetry:   func(context.Context, client.Retry) { retries++ },
			})
			for range 2 {
				resp, err := post(t, sender, wire.url)
				wantAnswer(t, resp, err, http.StatusCreated, "charged")
			}
			wire.mu.Lock()
			defer wire.mu.Unlock()
			if len(wire.seen) != 3 {
				t.Fatalf("%d requests on the wire, want 3", len(wire.seen))
			}
			first, second, again := wire.seen[0].Header.Get(header), wire.seen[1].Header.Get(header), wire.seen[2].Header.Get(header)
			if second != again || first == second {
				t.Errorf("the keys on the wire are %s, %s and %s", first, second, again)
			}
			if want := map[bool]int{true: 0, false: 1}[byItself]; retries != want {
				t.Errorf("the transport made %d attempts more, want %d", retries, want)
			}
		})
	}
}
