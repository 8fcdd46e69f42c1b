package e2e

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// seedOf returns EVERONCE_SEED, or a new seed, which it tells.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("EVERONCE_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("EVERONCE_SEED: %v", err)
		}
	}
	t.Logf("EVERONCE_SEED=%d", seed)
	return seed
}
