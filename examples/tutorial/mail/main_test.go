package main

import (
	"net/http"
	"testing"

	"github.com/everonce/everonce"
)

// TestStatus: a client is asked to send again only what another delivery may still answer.
func TestStatus(t *testing.T) {
	for o := everonce.Executed; o <= everonce.Invalid; o++ {
		again := status(o) == http.StatusServiceUnavailable
		switch o {
		case everonce.Rejected, everonce.Mismatch, everonce.Expired, everonce.Elided, everonce.Invalid:
			if again {
				t.Errorf("%v: the client is asked to send again what gets the same answer each time", o)
			}
		case everonce.Failed, everonce.StoreFailed, everonce.LeaseLost, everonce.NotRecorded:
			if !again {
				t.Errorf("%v: the client is answered %d, and not asked to send again", o, status(o))
			}
		}
	}
}
