package proxy

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"runtime"
	"testing"
	"time"
)

// A second signal that comes while nothing runs gives nothing up: what sends a signal to a whole group of processes, as
// timeout(1) does, sends two of them.
func TestNothingRunsAtTheSecondSignal(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 64 { // of two that are ready, select takes any
		if err := newTally().wait(ended); err != nil {
			t.Fatalf("%v, though nothing runs", err)
		}
	}
}

// Connections without a request give nothing up: a new one, such as a balancer's probe, and one of HTTP/2 whose
// requests are answered. net/http waits some seconds for both.
func TestAConnectionWithoutARequestIsNothingGivenUp(t *testing.T) {
	cert, key := writePair(t, t.TempDir(), "proxy")
	for name, hurry := range map[string]func(*proxied){"asked again": func(p *proxied) { close(p.now) }, "its time is over": func(*proxied) {}} {
		for protocol, args := range map[string][]string{"HTTP/1.1": nil, "HTTP/2.0": {"--tls-cert=" + cert, "--tls-key=" + key}} {
			t.Run(name+", "+protocol, func(t *testing.T) {
				if name == "its time is over" {
					args = append(args, "--drain-timeout=1ms")
				} else {
					args = append(args, "--drain-timeout=1h")
				}
				args = append(args, "--header-timeout=1h") // until then the silent one remains open
				var p *proxied
				p = start(t, func(http.ResponseWriter, *http.Request) {
					if p.serving.state().running == 0 {
						t.Error("nothing is seen of a request that is being answered")
					}
				}, args...)
				silent, err := net.Dial("tcp", p.Server.publicLn.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer silent.Close()
				tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
				defer tr.CloseIdleConnections()
				res, err := (&http.Client{Transport: tr}).Get(p.url) // over a connection accepted after the other, which remains open
				if err != nil {
					t.Fatal(err)
				}
				if res.Body.Close(); res.Proto != protocol {
					t.Fatalf("it was answered by %s", res.Proto)
				}
				for begun := time.Now(); p.serving.state().running > 0; runtime.Gosched() { // its answer has come; its handler has yet to return
					if time.Since(begun) > 10*time.Second {
						t.Fatal("a connection on which nothing is asked counts as one on which something is")
					}
				}
				p.stop()
				hurry(p)
				if <-p.ended; p.err != nil {
					t.Errorf("it ended with %v", p.err)
				}
			})
		}
	}
}
