package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/everonce/everonce/internal/testing/leaks"
)

// TestMain makes the test binary the program too, for scripts and for the demo's processes, and the service that
// stands behind a proxy which is killed: by the name that it is called by.
func TestMain(m *testing.M) {
	testscript.Main(leaks.M{M: m}, map[string]func(){"everonce": main, ledgerService: serveLedger})
}
