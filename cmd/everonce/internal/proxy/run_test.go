package proxy

import (
	"context"
	"net"
	"runtime"
	"strings"
	"testing"
)

// A second signal that comes while nothing runs gives nothing up: what sends a signal to a whole group of processes, as timeout(1) does, sends
// two of them.
func TestNothingRunsAtTheSecondSignal(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 64 { // of two that are ready, select takes any
		if err := newRunning().wait(ended); err != nil {
			t.Fatalf("%v, though nothing runs", err)
		}
	}
}

// Nor does it give anything up that a client has connected and asked nothing, as a balancer does that looks whether somebody is there, or a
// browser that will perhaps ask something: net/http waits for those as for the others.
func TestAConnectionWithoutARequestIsNothingGivenUp(t *testing.T) {
	for name, hurry := range map[string]func(*proxied){"asked again": func(p *proxied) { close(p.now) }, "its time is over": func(*proxied) {}} {
		t.Run(name, func(t *testing.T) {
			drain := "--drain=1h"
			if name == "its time is over" {
				drain = "--drain=1ms"
			}
			p := start(t, (&counting{}).ServeHTTP, drain)
			c, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			send(t, "GET", p.url+"/", "") // on a connection that was accepted behind it, and is kept
			for !p.busy.none() {
				runtime.Gosched() // its answer has come; the server has yet to note that it is idle
			}
			p.stop()
			hurry(p)
			if <-p.ended; p.err != nil {
				t.Errorf("it ended with %v", p.err)
			}
		})
	}
}
