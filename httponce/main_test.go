package httponce_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/internal/testing/leaks"
)

// TestMain also finds what request bodies keep of the memory for all, however their requests ended.
func TestMain(m *testing.M) {
	code := leaks.M{M: m}.Run()
	if n := httponce.BodyMemory(); code == 0 && n != 0 {
		fmt.Fprintf(os.Stderr, "FAIL: request bodies keep %d bytes of memory\n", n)
		code = 1
	}
	os.Exit(code)
}
