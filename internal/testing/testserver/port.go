package testserver

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// FreePort returns a port below those that the system gives to outgoing connections, which could else have it while a
// server is dead.
func FreePort(t testing.TB) int {
	t.Helper()
	const first, end = 10_000, 32_000
	var config net.ListenConfig
	for range 1000 {
		port := first + rand.IntN(end-first)
		if l, err := config.Listen(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			return port
		}
	}
	t.Fatal("there is no free port")
	return 0
}
